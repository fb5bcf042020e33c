#!/usr/bin/python3 -B
"""Whether the files and functions that the README's path of one call names exist, and its steps are numbered."""

import os
import re
import sys

HEADING = "## The path of one call\n"


def defines(text, function, is_header):
    """Whether `text`, of a source file, defines `function`: "Class::Name"."""
    class_name, name = function.split("::")
    if is_header:
        is_class = re.search(rf"\bclass (\[\[\w+\]\] )?{class_name}\b", text)
        return is_class and re.search(rf"^ .*\b{name}\(.*\{{$", text, re.MULTILINE)
    return re.search(rf"^\S.*\b{class_name}::{name}\(", text, re.MULTILINE)


def main():
    with open("README.md", encoding="utf-8") as file:
        section = file.read().split(HEADING, 1)[1].split("\n## ", 1)[0]
    wrong = []
    numbers = [int(number) for number in re.findall(r"^(\d+)\. ", section, re.MULTILINE)]
    if len(numbers) < 10 or numbers != list(range(1, len(numbers) + 1)):
        wrong.append(f"its steps are numbered {numbers}")
    links = re.findall(r"\[([^\]]+)\]\(([^)#]+)\)", section)
    named = [text for text, _ in links if re.fullmatch(r"`\w+::\w+\(\)`", text)]
    if len(named) < len(numbers):
        wrong.append(f"{len(numbers)} steps name {len(named)} functions")
    for text, path in links:
        if not os.path.exists(path):
            wrong.append(f"{path} is not there")
        elif text in named:
            with open(path, encoding="utf-8") as file:
                if not defines(file.read(), text.strip("`()"), path.endswith(".h")):
                    wrong.append(f"{path} does not define {text}")
    for each in wrong:
        print(f"README.md, the path of one call: {each}", file=sys.stderr)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
