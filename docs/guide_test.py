#!/usr/bin/env python3
"""Each block of C++ in guide.md is a snippet of the files, line for line, and each snippet is in guide.md.

    guide_test.py guide.md snippets/*.cc

A snippet is what is between "// snippet: name" and "// end of snippet", without the common indentation. Also checks
that each link of guide.md to one of its own headings finds that heading.
"""

import re
import sys
import textwrap


def snippets(path):
    """Yields the name and the text of each snippet of the file."""
    name = None
    for number, line in enumerate(open(path, encoding="utf-8"), 1):
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


def blocks(text):
    """Yields the number of its first line and the text of each block of C++."""
    for block in re.finditer(r"^```cpp\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield text.count("\n", 0, block.start()) + 2, block[1]


def anchors(text):
    """The anchors that GitHub makes from the headings."""
    for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        yield re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def main():
    guide = open(sys.argv[1], encoding="utf-8").read()
    unused = {}
    for path in sys.argv[2:]:
        for name, text in snippets(path):
            if text in unused:
                sys.exit(f"{path}: snippet {name} is the same as another one")
            unused[text] = f"{path}: snippet {name}"
    errors = []
    shown = list(blocks(guide))
    if not shown:
        errors.append("guide.md has no block of C++")
    for line, text in shown:
        if unused.pop(text, None) is None:
            errors.append(f"guide.md:{line}: this block is no snippet, or is here twice:\n{text}")
    errors += [f"{where} is not in guide.md" for where in unused.values()]
    headings = set(anchors(guide))
    errors += [f"guide.md has no heading #{to}" for to in re.findall(r"\]\(#([^)]+)\)", guide) if to not in headings]
    if errors:
        sys.exit("\n".join(errors))
    print(f"{len(shown)} snippets")


main()
