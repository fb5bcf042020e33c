#!/usr/bin/python3 -B
"""Each link of the pages finds a file and a heading, each test that they name is there, README.md is short, and each large
folder has a README.md.

It reads all *.md of the checkout. Looked at are links to files and headings, not those to other sites; and names of tests
in full, `Suite.Test` where the suite ends in "Test".
"""

import os
import re
import sys
import unittest

README_LINES_MAX = 120
# A folder with more of them has a README.md, or is in DESCRIBED.
SOURCES_MAX = 10
SOURCES = (".h", ".cc", ".py", ".sh", ".capnp", ".bzl")
# Folders that are described by the README.md of another one, which names them.
DESCRIBED = {
    "examples/kv/client": "examples/kv/README.md",
    "tests/codegen/testdata/refused": "tests/codegen/README.md",
    "tests/examples/kv": "tests/examples/README.md",
    "tools/hawser": "tools/README.md",
}

LINK = re.compile(r"\]\(([^()\s]+)\)")
TEST = re.compile(r"`(\w+Test)\.(\w+)`")
NAME = re.compile(r"`([A-Z][A-Za-z0-9]{19,})`")
DEFINED = re.compile(r"^(?:TEST|TEST_F|TEST_P|TYPED_TEST)\(\s*(\w+),\s*(\w+)\)", re.MULTILINE)


def without_code(text):
    """The page without blocks of code, of which only the ends of lines are left, and without code in a line."""
    text = re.sub(r"^( *)```.*?^\1```$", lambda block: "\n" * block[0].count("\n"), text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", lambda code: re.sub(r"[\[\]()]", "", code[0]), text)


def anchors(text):
    """The anchors that GitHub makes from the headings of a page."""
    seen = {}
    for heading in re.findall(r"^#+ (.*?) *#*$", without_code(text), re.MULTILINE):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        count = seen[anchor] = seen.get(anchor, -1) + 1
        yield f"{anchor}-{count}" if count else anchor


def faults(path, text, exists, read):
    """Texts of the links of one page that find nothing. `exists` and `read` take a path inside the checkout."""
    texts = []
    for link in LINK.finditer(without_code(text)):
        to, _, heading = link[1].partition("#")
        if re.match(r"[a-z]+:", to):
            continue
        target = os.path.normpath(os.path.join(os.path.dirname(path), to)) if to else path
        where = f"{path}:{without_code(text).count(chr(10), 0, link.start()) + 1}: {link[1]}"
        if target.startswith("..") or not exists(target):
            texts.append(f"{where}: there is no such file")
        elif heading and target.endswith(".md") and heading not in anchors(read(target)):
            texts.append(f"{where}: there is no such heading")
    return texts


def walk():
    """Yields the path of each folder of the checkout, and the names of its files."""
    for folder, folders, files in os.walk(ROOT):
        folders[:] = sorted(each for each in folders if not each.startswith((".git", "bazel-")))
        yield os.path.relpath(folder, ROOT), files


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def exists(path):
    return os.path.exists(os.path.join(ROOT, path))


class LinksTest(unittest.TestCase):
    def found(self, text):
        pages = {"a/b.md": "# One `two()`, three\n\n## Two\n\n## Two\n\n```sh\n# Four\n```\n", "a/c.md": text}
        return len(faults("a/c.md", text, lambda path: path in pages or path == "d", pages.get))

    def test_what_leads_nowhere_is_found(self):
        for link in ("[x](e.md)", "[x](b.md#four)", "[x](#x)", "[x](../a/b.md#two-2)", "[x](../../d)", "[x\ny](b.h)"):
            self.assertEqual(self.found(link), 1, link)

    def test_what_leads_somewhere_is_not(self):
        for link in (
            "[x](b.md)",
            "[x](b.md#one-two-three)",
            "[x](b.md#two-1)",
            "[x](../d)",
            "[x](https://example.org/#y)",
            "# X\n[x](#x)",
            "`[&pool](absl::AnyInvocable)`",
            "```cpp\n[this](auto) {}\n```",
        ):
            self.assertEqual(self.found(link), 0, link)

    def test_each_link_of_the_pages_finds_its_end(self):
        pages = [
            os.path.normpath(os.path.join(folder, file)) for folder, files in walk() for file in files if file.endswith(".md")
        ]
        self.assertGreater(len(pages), 20)
        texts = [text for page in pages for text in faults(page, read(page), exists, read)]
        self.assertEqual(texts, [], "\n" + "\n".join(texts))

    def test_each_test_that_the_pages_name_is_there(self):
        defined, named = set(), []
        for folder, files in walk():
            for file in files:
                path = os.path.normpath(os.path.join(folder, file))
                if file.endswith(".cc") and path.startswith(("tests/", "docs/")):
                    defined.update(DEFINED.findall(read(path)))
                elif file.endswith(".md"):
                    named += [(path, each) for each in TEST.findall(read(path))]
        self.assertGreater(len(named), 100)
        wrong = [f"{path}: there is no {'.'.join(each)}" for path, each in named if each not in defined]
        # Of several tests of a suite in one cell only the first has the suite.
        names = {name for _, name in defined}
        for page in ("docs/promises.md", "tests/README.md"):
            wrong += [f"{page}: there is no test {name}" for name in NAME.findall(read(page)) if name not in names]
        self.assertEqual(wrong, [], "\n" + "\n".join(wrong))

    def test_the_readme_is_one_and_a_half_screens(self):
        self.assertLessEqual(read("README.md").count("\n"), README_LINES_MAX)

    def test_each_large_folder_has_a_readme(self):
        wrong = [
            f"{folder}: it has no README.md"
            for folder, files in walk()
            if len([file for file in files if file.endswith(SOURCES)]) > SOURCES_MAX
            and "README.md" not in files
            and folder not in DESCRIBED
        ]
        wrong += [
            f"{readme} does not name {folder}"
            for folder, readme in DESCRIBED.items()
            if f"]({os.path.relpath(folder, os.path.dirname(readme))})" not in read(readme)
        ]
        self.assertEqual(wrong, [], "\n" + "\n".join(wrong))


if __name__ == "__main__":
    # The pages of the checkout, not those that Bazel copies for this test.
    ROOT = os.path.realpath(__file__).rsplit("/docs/", 1)[0]
    unittest.main()
