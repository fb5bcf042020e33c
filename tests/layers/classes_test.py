#!/usr/bin/python3 -B
"""No class of the library has more than LINES_MAX lines of source.

The lines of a class are those of its body and of its member functions outside of it, in whichever files, without blank lines and
comments. Those of its nested classes are among them. Prints the largest ones.
"""

import bisect
import collections
import os
import re
import unittest

ROOMS = ("base", "codegen", "measure", "observe", "rpc", "services", "tls", "tools", "transport")
LINES_MAX = 400

# Comments and literals, whose braces are none.
SKIPPED = re.compile(
    r"""//(?:\\\n|[^\n])*|/\*.*?\*/|R"(?P<mark>\w*)\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])*'""",
    re.DOTALL,
)
PREPROCESSOR = re.compile(r"^[ \t]*#(?:\\\n|[^\n])*", re.MULTILINE)
# What may stand between `class` and its name, and what a name has behind it in `Name<int>::`.
ATTRIBUTES = re.compile(r"\[\[[^\]]*\]\]|\balignas\s*\([^()]*\)|\b[A-Z][A-Z_]+\s*\([^()]*\)")
ARGUMENTS = re.compile(r"<[^<>]*>")
TEMPLATE = re.compile(r"^\s*template\s*<(?:[^<>]|<[^<>]*>)*>")
MEMBER = re.compile(r"((?:\w+\s*::\s*)+)(?:~?\w+|operator\s*[^\s\w(]+|operator\s+[\w:*& ]+|operator\s*\(\s*\))\s*\(")
# In a `requires` or `decltype` before a name. Their signs are neither brackets nor an assignment.
COMPARISON = re.compile(r"(?<!operator)(?<!operator )(?:<=>|[<>=!]=)")
ANONYMOUS = "(anonymous)"


def hidden(text, keep):
    """The same number of lines, with comments and literals gone, or literals as text if they are to be counted."""

    def blank(found):
        is_comment = found[0].startswith(("//", "/*"))
        return re.sub(r"[^\n]", " " if is_comment or not keep else "s", found[0])

    return SKIPPED.sub(blank, text)


def close_of(text, begin, pair="{}"):
    """Where the bracket that opens at `begin` closes."""
    depth = 0
    for found in re.compile(f"[{re.escape(pair)}]").finditer(text, begin):
        depth += 1 if found[0] == pair[0] else -1
        if depth == 0:
            return found.start()
    raise ValueError(f"nothing closes what opens with {text[begin : begin + 40]!r}")


def without_arguments(head):
    while ARGUMENTS.search(head):
        head = ARGUMENTS.sub("", head)
    return head


def class_of(head):
    """The name in `class Name final : public Base`, or None if that is none."""
    head = ATTRIBUTES.sub(" ", TEMPLATE.sub("", head)).strip()
    if not re.match(r"(?:class|struct|union)\b", head):
        return None
    name = re.split(r"(?<!:):(?!:)", without_arguments(head))[0].split()[1:]
    if name and name[-1] == "final":
        name.pop()
    return name[-1].split("::") if name and "(" not in " ".join(name) else []


def member_of(head):
    """The class in `void Outer::Name::Function(...) const`, as a list, or None."""
    head = without_arguments(COMPARISON.sub(" ", TEMPLATE.sub("", head)).replace("operator<=>", "operator=").replace("<<", ""))
    found = MEMBER.search(head)
    if found is None or "=" in head[: found.start()]:
        return None
    return re.findall(r"\w+", found[1])


def begins_initializer(head):
    """Whether the brace behind this begins the value of a member in a constructor: `A::A() : one_`."""
    return re.search(r"\)\s*(?:noexcept\s*)?:(?!:)", head) is not None and re.search(r"[\w>]$", head.rstrip()) is not None


class Source:
    """The classes and member functions of one file, as (scope, names, lines)."""

    def __init__(self, path, text):
        self.path, self.classes, self.members = path, [], []
        counted = hidden(text, keep=True).split("\n")
        self.numbers = [number for number, line in enumerate(counted) if line.strip()]
        self.text = PREPROCESSOR.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), hidden(text, keep=False))
        self.read(0, len(self.text), [])

    def lines(self, begin, end):
        begin += len(self.text[begin:end]) - len(self.text[begin:end].lstrip())
        first, last = self.text.count("\n", 0, begin), self.text.count("\n", 0, end)
        return bisect.bisect_right(self.numbers, last) - bisect.bisect_left(self.numbers, first)

    def read(self, begin, end, scope):
        """What stands between `begin` and `end`, which is the inside of a namespace."""
        start, parentheses = begin, 0
        position = begin
        while position < end:
            each = self.text[position]
            parentheses += {"(": 1, ")": -1}.get(each, 0)
            if each == ";" and parentheses == 0:
                start = position + 1
            elif each == "{":
                position = self.brace(start, position, parentheses, scope)
                if self.text[position] == "}" and self.ended:
                    start = position + 1
            position += 1

    def brace(self, start, at, parentheses, scope):
        """Reads what begins at this brace, and returns its end. `self.ended`: so does the declaration."""
        head, close = self.text[start:at], close_of(self.text, at)
        self.ended = False
        if parentheses != 0 or begins_initializer(head):
            return close
        if re.match(r'\s*(?:inline\s+)?namespace\b|\s*extern\s+$', head):
            names = re.findall(r"\w+", re.sub(r"inline|namespace|extern", "", head))
            is_named = names or "extern" in head
            self.read(at + 1, close, scope + (names if is_named else [f"{ANONYMOUS} {self.path}"]))
            self.ended = True
        elif (names := class_of(head)) is not None:
            if names:
                self.classes.append((scope, names, self.lines(start, close)))
        elif (names := member_of(head)) is not None:
            self.members.append((scope, names, self.lines(start, close)))
            self.ended = True
        else:
            # A function, or a value, which ends with a semicolon.
            self.ended = "=" not in head and ")" in head
        return close


def class_lines(sources):
    """{name of a class: its lines}, and the member functions whose class is none of these."""
    totals, strays = collections.Counter(), []
    for source in sources:
        for scope, names, lines in source.classes:
            if len(names) == 1:
                totals[tuple(scope + names)] += lines
    for source in sources:
        members = source.members + [each for each in source.classes if len(each[1]) > 1]
        for scope, names, lines in members:
            # The first name may be of a namespace; it is looked for from the inside to the outside.
            for size in range(len(scope), -1, -1):
                owner = next((key for count in range(1, len(names) + 1) if (key := tuple(scope[:size] + names[:count])) in totals), None)
                if owner is not None:
                    totals[owner] += lines
                    break
            else:
                # A specialization of a template of std, or a table of functions that return such types.
                if names[0] != "std":
                    strays.append(f"{source.path}: {'::'.join(names)}")
    return totals, strays


def name_of(key):
    return "::".join(each.replace(ANONYMOUS, "").strip() or each for each in key if each not in ("hawser", "internal"))


def faults(totals, lines_max):
    return [f"{name_of(key)} has {lines} lines, {lines_max} at most" for key, lines in totals.most_common() if lines > lines_max]


SELF_TEST = {
    "a/small.h": """
namespace hawser {
// A comment { with a brace.
enum class Color { kRed };
class [[nodiscard]] Small final : public Base<int> {
 public:
  Small();  // Not counted

  struct Nested {
    int Twice() const;
  };
  int one_{1}, two_{2};
};
template <typename T>
struct List { T value; };
}  // namespace hawser
""",
    "a/small.cc": """
#include "a/small.h"
#define BRACE {
namespace hawser {
namespace {
const char* const kText = "}{";
constexpr int kTable[] = {
    1,
};
struct Small2 {
  int a;
};
int Free(int x) {
  return x;
}
}  // namespace
Small::Small()
    : one_{1},
      two_(2) {
  if (one_ == '{') {
    two_ = 1'000;
  }
}
int Small::Nested::Twice() const {
  /* a
     comment */
  return 2;
}
template <typename T>
void List<T>::Add() {}
template <typename T>
  requires(sizeof(T) >= 8 && sizeof(T) <= 64)
void List<T>::AddLarge() {
}
decltype(one == two) Small::IsEqual() {
  return true;
}
bool Small::operator==(const Small& other) const {
  return true;
}
const int kMade = Small::Make([] {
  return 1;
});
std::string other::Gone() { return {}; }
}  // namespace hawser
""",
}


class ClassesTest(unittest.TestCase):
    def test_lines_are_counted(self):
        totals, strays = class_lines([Source(path, text) for path, text in SELF_TEST.items()])
        self.assertEqual(
            {name_of(key): lines for key, lines in totals.items()},
            {"Small": 8 + 7 + 3 + 3 + 3, "List": 2 + 2 + 4, "a/small.cc::Small2": 3},
        )
        self.assertEqual(strays, ["a/small.cc: other"])

    def test_a_class_that_is_too_large_is_found(self):
        grown = {path: text.replace("  return 2;\n", "  return 2;\n" * LINES_MAX) for path, text in SELF_TEST.items()}
        for texts, wanted in ((SELF_TEST, []), (grown, [f"Small has {23 + LINES_MAX} lines, {LINES_MAX} at most"])):
            totals, _ = class_lines([Source(path, text) for path, text in texts.items()])
            self.assertEqual(faults(totals, LINES_MAX), wanted)

    def test_no_class_of_the_library_is_too_large(self):
        sources = []
        for room in ROOMS:
            found = len(sources)
            for folder, _, files in os.walk(os.path.join(ROOT, room)):
                for file in sorted(files):
                    if file.endswith((".h", ".cc")):
                        path = os.path.join(folder, file)
                        with open(path, encoding="utf-8") as opened:
                            sources.append(Source(os.path.relpath(path, ROOT), opened.read()))
            self.assertGreater(len(sources), found, room)
        totals, strays = class_lines(sources)
        self.assertGreater(len(totals), 500)
        self.assertGreater(sum(len(each.members) for each in sources), 2000)
        for key, lines in totals.most_common(12):
            print(f"{lines:4} {name_of(key)}")
        self.assertEqual(strays, [])
        self.assertEqual(faults(totals, LINES_MAX), [])


if __name__ == "__main__":
    ROOT = os.path.realpath(__file__).rsplit("/tests/layers/", 1)[0]
    unittest.main()
