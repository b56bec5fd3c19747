"""Writes train/tokenizer/unicode_additions.h: where the general categories of Hugging Face's `tokenizers` (Oniguruma's, Unicode
16) differ from those of Debian's utf8proc (Unicode 15); and unicode_inert.h: which characters the normal forms of `tokenizers`
(Unicode 9) do not know.

pip install tokenizers==0.23.3; apt-get install libutf8proc2
"""
import ctypes
import pathlib

from tokenizers import Regex, normalizers, pre_tokenizers

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


INERT = """// Characters that no normal form of Hugging Face's `tokenizers` changes, moves or joins, because
// their tables are of Unicode 9, but of which the library utf8proc (Unicode 15) knows more. Made by
// tests/golden/make_unicode.py.

#pragma once

#include <cstdint>
#include <utility>

namespace trainyard {

inline constexpr std::pair<uint32_t, uint32_t> kInertInForms[] = {
%s};

}  // namespace trainyard
"""


class Property(ctypes.Structure):
    """The beginning of utf8proc_property_t."""
    _fields_ = [("category", ctypes.c_int16), ("combining_class", ctypes.c_int16)]


def parts_of(library, c, compatible):
    """The full decomposition."""
    parts, last_class = (ctypes.c_int32 * 32)(), ctypes.c_int(0)
    count = library.utf8proc_decompose_char(c, parts, 32, 16 | (4 if compatible else 0), ctypes.byref(last_class))  # DECOMPOSE, COMPAT
    return list(parts[:count])


def inert_characters(library):
    library.utf8proc_get_property.restype = ctypes.POINTER(Property)
    nfd, nfkd = normalizers.NFD(), normalizers.NFKD()
    inert = set()
    for c in CODE_POINTS:
        combining_class = library.utf8proc_get_property(c).contents.combining_class
        if combining_class == 0 and parts_of(library, c, True) == [c]:
            continue
        # A mark of another class stands before it or after it, unless it has no class.
        texts = [chr(c), chr(c) + "\u0334", "\u0345" + chr(c), "\u0323" + chr(c)] if combining_class else [chr(c)]
        if any(form.normalize_str(text) != text for form in (nfd, nfkd) for text in texts):
            continue
        inert.add(c)
        inert.update(parts_of(library, c, False))  # They join to it.
    return inert


def write_inert(library):
    ranges = []
    for c in sorted(inert_characters(library)):
        if ranges and ranges[-1][1] == c - 1:
            ranges[-1][1] = c
        else:
            ranges.append([c, c])
    header = HEADER.with_name("unicode_inert.h")
    header.write_text(INERT % "".join(f"    {{0x{first:X}, 0x{last:X}}},\n" for first, last in ranges))


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
    write_inert(library)
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
