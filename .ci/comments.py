#!/usr/bin/python3 -B
"""Comments of C++ that are too wide. clang-format leaves comments alone (ReflowComments: false), so this looks at them.

    comments.py FILE...          names each line of a comment that is wider than 110 columns; exit status 1 if there is one
    comments.py --wrap FILE...   breaks such lines, and what follows them in their paragraph, but not those behind code. Read what
                                 it has made

A paragraph ends where a sentence ends on a line that could have taken the next word, at an empty line, at an item of a list, at a label (`Thread:`),
and where the indentation changes. What is indented is an example or a table: it is not broken, and has to be mended by hand.
"""

import re
import sys
import textwrap

COLUMNS = 110
# Where the next word would have fit, the end of a line was meant.
MEANT = 96

STRING = re.compile(r'"(\\.|[^"\\])*"')
COMMENT = re.compile(r"^(\s*)//( *)(.*?)\s*$")
ITEM = re.compile(r"([-*] +|\d+\. +|[A-Z]\w+: +)")


def too_wide(lines):
    """The numbers of the lines of comments that are too wide, from 0."""
    return [number for number, line in enumerate(lines) if len(line) > COLUMNS and COMMENT.match(line)]


def too_wide_behind_code(lines):
    """The numbers of the lines of code that a comment makes too wide, from 0."""
    return [
        number
        for number, line in enumerate(lines)
        if len(line) > COLUMNS and not COMMENT.match(line) and "//" in STRING.sub("", line)
    ]


def paragraph(lines, start):
    """The number of the line behind the paragraph that `start` is in, and the spaces before its further lines."""
    indentation, spaces, text = COMMENT.match(lines[start]).groups()
    item = ITEM.match(text)
    hanging = len(spaces)
    end = start + 1
    while end < len(lines):
        following = COMMENT.match(lines[end])
        if not following or following[1] != indentation or not following[3] or ITEM.match(following[3]):
            break
        if end == start + 1 and item and len(following[2]) == len(spaces) + item.end():
            hanging = len(following[2])
        if len(following[2]) != hanging:
            break
        if len(lines[end - 1]) + 1 + len(following[3].split()[0]) <= MEANT and lines[end - 1].rstrip().endswith((".", ":")):
            break
        end += 1
    if end == start + 1 and item and (text.startswith(("-", "*")) or text.split(":")[0] in ("Thread", "Lifetime", "Failure")):
        hanging = len(spaces) + item.end()
    return end, hanging


def wrap(lines):
    """The lines, with those of comments that are too wide broken."""
    lines = list(lines)
    number = 0
    while number < len(lines):
        if not (len(lines[number]) > COLUMNS and COMMENT.match(lines[number])):
            number += 1
            continue
        indentation, spaces, _ = COMMENT.match(lines[number]).groups()
        if len(spaces) > 1 and not hangs(lines, number):
            number += 1
            continue
        end, hanging = paragraph(lines, number)
        text = " ".join(COMMENT.match(line)[3] for line in lines[number:end])
        first, further = f"{indentation}//{spaces}", f"{indentation}//{' ' * hanging}"
        broken = textwrap.wrap(
            text, COLUMNS, initial_indent=first, subsequent_indent=further, break_long_words=False, break_on_hyphens=False
        )
        lines[number:end] = broken
        number += len(broken)
    return lines


def hangs(lines, number):
    """Whether an indented line is one of an item of a list, or belongs to one above it."""
    _, spaces, text = COMMENT.match(lines[number]).groups()
    if ITEM.match(text):
        return True
    while number > 0:
        number -= 1
        above = COMMENT.match(lines[number])
        if not above or not above[3]:
            return False
        if len(above[2]) < len(spaces):
            item = ITEM.match(above[3])
            return bool(item) and len(above[2]) + item.end() == len(spaces)
    return False


def main(arguments):
    is_to_wrap = arguments[:1] == ["--wrap"]
    wide = 0
    for path in arguments[is_to_wrap:]:
        with open(path, encoding="utf-8") as file:
            lines = file.read().split("\n")
        if is_to_wrap and too_wide(lines):
            lines = wrap(lines)
            with open(path, "w", encoding="utf-8") as file:
                file.write("\n".join(lines))
        for number in too_wide(lines) + too_wide_behind_code(lines):
            print(f"{path}:{number + 1}: a comment of {len(lines[number])} columns, more than {COLUMNS}", file=sys.stderr)
            wide += 1
    return 1 if wide else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
