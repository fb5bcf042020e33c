#!/usr/bin/env python3
"""Each block of C++ in a page is a snippet of the files, line for line, and each snippet is in the page.

    guide_test.py guide.md snippets/*.cc
    guide_test.py README.md snippets/readme_test.cc echo.capnp

A snippet is what is between "// snippet: name" and "// end of snippet", without the common indentation. If schemas are
given, each block of Cap'n Proto is a part of one of them. links_test.py checks the links, and header_examples_test.py the
snippets with which headers open.
"""

import os
import re
import sys
import textwrap


def snippets(path):
    """Yields the name and the text of each snippet of the file."""
    name = None
    with open(path, encoding="utf-8") as file:
        source = file.readlines()
    for number, line in enumerate(source, 1):
        begins = re.fullmatch(r"\s*// snippet: (\w+)\n", line)
        ends = re.fullmatch(r"\s*// end of snippet\n", line)
        if (begins and name) or (ends and not name):
            sys.exit(f"{path}:{number}: a snippet begins inside another one, or ends that has not begun")
        if begins:
            name, lines = begins[1], []
        elif ends:
            yield name, textwrap.dedent("".join(lines))
            name = None
        elif name:
            lines.append(line)
    if name:
        sys.exit(f"{path}: snippet {name} has no end")


def blocks(text, language):
    """Yields the number of its first line and the text of each block of that language."""
    for block in re.finditer(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield text.count("\n", 0, block.start()) + 2, block[1]


def main():
    page = os.path.basename(sys.argv[1])
    text_of_page = open(sys.argv[1], encoding="utf-8").read()
    schemas = [open(path, encoding="utf-8").read() for path in sys.argv[2:] if path.endswith(".capnp")]
    unused = {}
    for path in [path for path in sys.argv[2:] if path.endswith(".cc")]:
        for name, text in snippets(path):
            if text in unused:
                sys.exit(f"{path}: snippet {name} is the same as another one")
            unused[text] = f"{path}: snippet {name}"
    errors = []
    shown = list(blocks(text_of_page, "cpp"))
    if not shown:
        errors.append(f"{page} has no block of C++")
    for line, text in shown:
        if unused.pop(text, None) is None:
            errors.append(f"{page}:{line}: this block is no snippet, or is here twice:\n{text}")
    errors += [f"{where} is not in {page}" for where in unused.values()]
    if schemas:
        declared = list(blocks(text_of_page, "capnp"))
        if not declared:
            errors.append(f"{page} has no block of Cap'n Proto")
        errors += [
            f"{page}:{line}: this block is in no schema:\n{text}"
            for line, text in declared
            if not any(text in schema for schema in schemas)
        ]
    if errors:
        sys.exit("\n".join(errors))
    print(f"{len(shown)} snippets")


if __name__ == "__main__":
    main()
