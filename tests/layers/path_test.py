#!/usr/bin/python3 -B
"""Whether the files and functions that the path of one call names exist, and its steps are numbered.

The upper half of the path is in rpc/README.md, the lower half in transport/README.md. rpc/README.md also says where a call leaves
the path.
"""

import os
import re
import sys

PATH = "## The path of one call\n"
HALVES = {"rpc/README.md": 8, "transport/README.md": 9}  # With so many steps at least.
EXITS = "## Where a call leaves the path\n"


def defines(text, function, is_header):
    """Whether `text`, of a source file, defines `function`: "Class::Name"."""
    class_name, name = function.split("::")
    if is_header:
        is_class = re.search(rf"\bclass (\[\[\w+\]\] )?{class_name}\b", text)
        return is_class and re.search(rf"^ .*\b{name}\(.*\{{$", text, re.MULTILINE)
    return re.search(rf"^\S.*\b{class_name}::{name}\(", text, re.MULTILINE)


def section_of(readme, heading):
    with open(readme, encoding="utf-8") as file:
        return file.read().split(heading, 1)[1].split("\n## ", 1)[0]


def faults(readme, heading, least=0):
    """Texts of what is wrong in that section, which has so many numbered steps at least."""
    section = section_of(readme, heading)
    wrong = []
    numbers = [int(number) for number in re.findall(r"^(\d+)\. ", section, re.MULTILINE)]
    if len(numbers) < least or numbers != list(range(1, len(numbers) + 1)):
        wrong.append(f"its steps are numbered {numbers}")
    links = re.findall(r"\[([^\]]+)\]\(([^)#]+)\)", section)
    named = [text for text, _ in links if re.fullmatch(r"`\w+::\w+\(\)`", text)]
    if len(named) < max(len(numbers), 1):
        wrong.append(f"{len(numbers)} steps name {len(named)} functions")
    for text, link in links:
        path = os.path.normpath(os.path.join(os.path.dirname(readme), link))
        if not os.path.exists(path):
            wrong.append(f"{path} is not there")
        elif text in named:
            with open(path, encoding="utf-8") as file:
                if not defines(file.read(), text.strip("`()"), path.endswith(".h")):
                    wrong.append(f"{path} does not define {text}")
    return [f"{readme}, {heading.strip('# ').strip()}: {each}" for each in wrong]


def main():
    wrong = [each for readme, least in HALVES.items() for each in faults(readme, PATH, least)]
    wrong += faults("rpc/README.md", EXITS)
    for each in wrong:
        print(each, file=sys.stderr)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
