"""Reads what `cuobjdump -sass` prints: per kernel, each instruction's name and its two words."""
import re

FUNCTION = re.compile(r"\s+Function : (\S+)")
WORD = r"/\* 0x([0-9a-f]{16}) \*/"
FIRST = re.compile(r"\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+ +)?([A-Z0-9_.]+).*" + WORD)
SECOND = re.compile(r"\s+" + WORD)


def functions(text):
    """[(mangled name, [(instruction, low word, high word)])]"""
    found = []
    for line in text.split("\n"):
        if match := FUNCTION.match(line):
            found.append((match[1], []))
        elif match := FIRST.match(line):
            begun = match[1], int(match[2], 16)
        elif match := SECOND.match(line):
            found[-1][1].append((*begun, int(match[1], 16)))
    return found


def as_rules_say(name):
    """The name that device_code.py gives the disassembler's: LDG.32 for LDG.E.CONSTANT."""
    kind, *modifiers = name.split(".")
    if kind in ("LDG", "STG", "LD", "ST", "LDL", "STL", "LDGSTS"):
        widths = [m.strip("US") for m in modifiers if re.fullmatch(r"[US]?(8|16|64|128)", m)]
        return f"{kind}.{widths[0] if widths else 32}"
    return kind if kind in ("HMMA", "EXIT") else None
