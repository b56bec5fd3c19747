"""Writes train/tokenizer/unicode_additions.h: where the general categories of Hugging Face's `tokenizers` (Oniguruma's, Unicode
16) differ from those of Debian's utf8proc (Unicode 15).

pip install tokenizers==0.23.3; apt-get install libutf8proc2
"""
import ctypes
import pathlib

from tokenizers import Regex, pre_tokenizers

HEADER = pathlib.Path(__file__).parents[2] / "train/tokenizer/unicode_additions.h"
CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co Cn".split()
CODE_POINTS = [c for c in range(0x110000) if not 0xd800 <= c <= 0xdfff]
TEXT = """// Characters whose general category is another one in Unicode 16, which Hugging Face's `tokenizers`
// have, than in Unicode 15, which the library utf8proc has. Made by tests/golden/make_unicode.py.

#pragma once

#include <utf8proc.h>

#include <cstdint>

namespace trainyard {

struct UnicodeAddition {
  uint32_t first, last;  // Both are included.
  utf8proc_category_t category;
};

inline constexpr UnicodeAddition kUnicodeAdditions[] = {
%s};

}  // namespace trainyard
"""


def of_tokenizers(pattern):
    """The code points that the pattern matches."""
    split, found = pre_tokenizers.Split(Regex(pattern), "removed", invert=True), set()
    for i in range(0, len(CODE_POINTS), 20_000):
        for word, _ in split.pre_tokenize_str("".join(map(chr, CODE_POINTS[i:i + 20_000]))):
            found.update(map(ord, word))
    return found


def main():
    library = ctypes.CDLL("libutf8proc.so.2")
    library.utf8proc_category_string.restype = ctypes.c_char_p
    wanted = {c: name for name in CATEGORIES for c in of_tokenizers(rf"\p{{{name}}}")}
    ranges = []
    for c in CODE_POINTS:
        if wanted[c] == library.utf8proc_category_string(c).decode():
            continue
        if ranges and ranges[-1][1] == c - 1 and ranges[-1][2] == wanted[c]:
            ranges[-1][1] = c
        else:
            ranges.append([c, c, wanted[c]])
    HEADER.write_text(TEXT % "".join(f"    {{0x{first:X}, 0x{last:X}, UTF8PROC_CATEGORY_{name.upper()}}},\n" for first, last, name in ranges))


if __name__ == "__main__":
    main()
