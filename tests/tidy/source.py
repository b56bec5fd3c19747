"""A source file as the rules see it: its lines, and its code with comments and literals blanked out."""
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

CODE_SUFFIXES = {".h", ".cc", ".cu", ".cuh"}

_TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<tag>[^(\s]*)\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.S)


def blank(text):
    """Comments and literals replaced by spaces of the same length, line breaks kept, so that positions stay."""

    def spaces(match):
        found = match.group(0)
        if found.startswith("'") and match.start() > 0 and text[match.start() - 1].isalnum():
            return found  # A digit separator, as in 1'000'000.
        return re.sub(r"[^\n]", " ", found)

    return _TOKEN.sub(spaces, text)


@dataclass(frozen=True)
class Function:
    name: str
    line: int          # Of its opening, from 1.
    lines: int         # Opening to closing brace.
    parameters: int


@dataclass
class Source:
    root: Path
    path: Path         # Relative to root.

    @cached_property
    def text(self):
        return (self.root / self.path).read_text(encoding="utf-8", errors="replace")

    @cached_property
    def lines(self):
        return self.text.split("\n")

    @cached_property
    def code(self):
        return blank(self.text)

    @property
    def is_code(self):
        return self.path.suffix in CODE_SUFFIXES

    @cached_property
    def includes(self):
        """(line, path) of every quoted include."""
        return [(i, m.group(1)) for i, line in enumerate(self.lines, 1)
                if (m := re.match(r'\s*#include "([^"]+)"', line))]

    def find(self, pattern):
        """(line, text) of every match in the code proper."""
        return [(self.code.count("\n", 0, m.start()) + 1, m.group(0)) for m in re.finditer(pattern, self.code)]

    @cached_property
    def functions(self):
        """Every function defined in this file. Relies on clang-format: a body's closing brace stands on a line of its own."""
        found = []
        for m in re.finditer(r"([~\w]+)\s*\(", self.code):
            name = m.group(1)
            if name in {"if", "for", "while", "switch", "catch", "return", "sizeof", "alignof", "decltype", "noexcept"}:
                continue
            close = _closing(self.code, m.end() - 1)
            if close is None:
                continue
            tail = re.match(r"\s*(?:const|override|final|noexcept|mutable|&&?|\s)*(?:->\s*[\w:<>,&*\s]+?)?"
                            r"(?:\s*:\s*[^;{]*(?:\{[^{}]*\}[^;{]*)*?)?\s*\{", self.code[close + 1:close + 4000])
            if not tail or not re.match(r"[\w:<>,&*\s~\[\]()]*$", self._before(m.start())):
                continue
            open_brace = close + tail.end()
            end = _closing(self.code, open_brace)
            if end is None:
                continue
            start_line = self.code.count("\n", 0, m.start()) + 1
            found.append(Function(name, start_line, self.code.count("\n", m.start(), end) + 1,
                                  count_parameters(self.code[m.end():close])))
        return found

    def _before(self, position):
        return self.code[self.code.rfind("\n", 0, position) + 1:position]


def _closing(code, opening):
    """Index of the bracket that closes the one at `opening`."""
    pairs = {"(": ")", "{": "}"}
    if code[opening] not in pairs:
        return None
    depth = 0
    for i in range(opening, len(code)):
        if code[i] == code[opening]:
            depth += 1
        elif code[i] == pairs[code[opening]]:
            depth -= 1
            if depth == 0:
                return i
    return None


def count_parameters(text):
    depth, count = 0, 1 if text.strip() not in ("", "void") else 0
    for c in text:
        depth += c in "(<{["
        depth -= c in ")>}]"
        count += c == "," and depth == 0
    return count
