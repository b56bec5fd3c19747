#!/usr/bin/env python3
"""Proves that kernels are read right, and that every rule finds what it is there to find."""
import struct
import unittest
from collections import Counter
from unittest import mock

import check
import device_code
import rules
from device_code import Kernel, Unreadable
from listing import as_rules_say, functions
from rules import Excuse

LISTING = """
		Function : _Z1kv
        /*02c0*/    LDG.E.64 R16, desc[UR8][R16.64] ;  /* 0x0000000810107981 */
                        /* 0x000f62000c1e1b00 */
        /*1d40*/    LDG.E.128.CONSTANT R12, desc[UR22][R32.64] ;  /* 0x00000016200c7981 */
                        /* 0x000ea8000c1e9d00 */
        /*0810*/    STG.E.U16 desc[UR8][R22.64], R26 ;  /* 0x0000001a16007986 */
                        /* 0x0001e2000c101508 */
        /*1500*/    STG.E.128 desc[UR36][R34.64], R12 ;  /* 0x0000000c22007986 */
                        /* 0x0001e4000c101d24 */
        /*02e0*/    STG.E desc[UR8][R8.64], R4 ;  /* 0x0000000408007986 */
                        /* 0x0045e8000c101908 */
        /*0f30*/    STL.128 [R1], R8 ;  /* 0x0000000801007387 */
                        /* 0x0013ec0000100c00 */
        /*4230*/    LDL.64 R12, [R1+0x10] ;  /* 0x00001000010c7983 */
                        /* 0x000ea80000100a00 */
        /*27b0*/    HMMA.16816.F32.BF16 R12, R20.reuse, R80, R12 ;  /* 0x00000050140c723c */
                        /* 0x042fec000004180c */
        /*05c0*/    HFMA2.MMA R9, -RZ, RZ, 0, 0 ;  /* 0x00000000ff097435 */
                        /* 0x000fc600000001ff */
        /*1100*/    LDGSTS.E.BYPASS.128 [R3], desc[UR6][R8.64], P3 ;  /* 0x0000000008037fae */
                        /* 0x0003e20009901c46 */
        /*1890*/    LDS.128 R16, [R50+UR6] ;  /* 0x0000000632107984 */
                        /* 0x000fe80008000c00 */
        /*4db0*/    REDG.E.ADD.STRONG.GPU desc[UR6][R58.64+0x8], R3 ;  /* 0x000008033a00798e */
                        /* 0x000fe8000c10e186 */
        /*0020*/    LDC.64 R2, c[0x0][0x210] ;  /* 0x00008400ff027b82 */
                        /* 0x000e240000000a00 */
        /*0050*/    @P0 EXIT ;  /* 0x000000000000094d */
                        /* 0x000fea0003800000 */
"""
((KERNEL, LINES),) = functions(LISTING)
TEXT = b"".join(struct.pack("<QQ", low, high) for _, low, high in LINES)
DOES = dict.fromkeys(("LDG.64", "LDG.128", "STG.16", "STG.128", "STG.32", "STL.128", "LDL.64",
                      "HMMA", "LDGSTS.128"), 1)


def elf(contents):
    """An ELF file with these sections, and with nothing else that is read."""
    names = b"\0" + b"".join(name.encode() + b"\0" for name in contents) + b".shstrtab\0"
    body, headers = b"", b""
    for name, data in (*contents.items(), (".shstrtab", names)):
        at = names.index(name.encode() + b"\0")
        headers += struct.pack("<IIQQQQ24x", at, 1, 0, 0, 64 + len(body), len(data))
        body += data
    rest = struct.pack("<Q10xHHH", 64 + len(body), 64, len(contents) + 1, len(contents))
    return b"\x7fELF\x02".ljust(40, b"\0") + rest + body + headers


def fatbin(payload, kind=device_code.CUBIN):
    entry = struct.pack("<HHIQ", kind, 0x101, 64, len(payload)).ljust(64, b"\0") + payload
    return struct.pack("<IHHQ", device_code.FATBIN, 1, 16, len(entry)) + entry


class Reading(unittest.TestCase):
    def test_instructions_are_what_the_disassembler_shows(self):
        self.assertEqual(len(LINES), 14)
        for shown, low, high in LINES:
            self.assertEqual(device_code.instruction(low, high), as_rules_say(shown), shown)
        self.assertEqual(device_code.code_of(TEXT), DOES)

    def test_kernels_are_found_in_an_object(self):
        cubin = elf({".nv.info": b"1234", ".text._Z1kv": TEXT})
        code = fatbin(cubin)
        code += b"\0" * (-len(code) % 8) + fatbin(b"// PTX", kind=1)
        data = elf({".text": b"host", ".nv_fatbin": code})
        self.assertEqual(device_code.kernels_of(data, "a.cu"), [Kernel("a.cu k", Counter(DOES))])
        self.assertEqual(device_code.kernels_of(elf({".text": b"host"}), "a.cc"), [])

    def test_names_keep_what_tells_kernels_apart(self):
        here = "trainyard::cuda::(anonymous namespace)::"
        for name, plain in (
                (f"void trainyard::cuda::RowsKernel<8, {here}RopeBody<trainyard::bf16> >"
                 f"(long, long, {here}RopeBody<trainyard::bf16>)", "RowsKernel<8, RopeBody<bf16>>"),
                (f"void {here}RowsKernel<trainyard::cuda::TensorProduct, (trainyard::cuda::Order)0>"
                 "(int)", "RowsKernel<TensorProduct, (Order)0>"),
                (f"{here}ClipKernel(trainyard::StepState*)", "ClipKernel")):
            self.assertEqual(device_code.plain(name), plain)

    def test_what_is_laid_out_otherwise_is_an_error(self):
        of_kernel = lambda text: fatbin(elf({".text.k": text}))
        unknown = struct.pack("<QQ", 0x7990, 0)
        compressed = fatbin(b"\x28\xb5\x2f\xfd")
        device_code.code_of_object(elf({".nv_fatbin": of_kernel(TEXT)}))
        for fatbins in (b"\0" * 64, compressed, of_kernel(TEXT[:-16]), of_kernel(unknown + TEXT)):
            with self.assertRaises(Unreadable):
                device_code.code_of_object(elf({".nv_fatbin": fatbins}))
        for data in (b"", b"// no ELF"):
            with self.assertRaises(Unreadable):
                device_code.code_of_object(data)


EXPECTED = {
    "ELEMENTWISE": (r"a\.cu Copy<(1)>",),
    "NARROW": (Excuse(r"a\.cu Copy<\d>", "STG.32:1", "a sum a row"),
               Excuse(r"a\.cu Plain<.*", "LDG.16:* STG.32:*", "slow")),
    "TENSOR_CORES": (r"a\.cu Product<.*>",),
    "LOCAL": (Excuse(r"a\.cu Fails", "STL:*", "arguments of Fail()"),),
}
LEGAL = {
    "a.cu Copy<8>": {"LDG.128": 2, "STG.128": 1, "STG.32": 1},
    "a.cu Copy<1>": {"LDG.16": 2, "STG.16": 1, "STG.32": 1},
    "a.cu Other": {"LDG.128": 1, "LDGSTS.128": 4},
    "a.cu Sums<double>": {"LDG.64": 1, "STG.64": 2},
    "a.cu Plain<bf16>": {"LDG.16": 7, "STG.32": 9},
    "a.cu Product<bf16>": {"HMMA": 32, "STG.128": 1},
    "a.cu Fails": {"STL.32": 1, "STL.64": 2},
}


class Rules(unittest.TestCase):
    def findings(self, **changes):
        """Of the legal kernels, where Copy_8 is what Copy<8> does now; None: it is gone."""
        kernels = []
        for name, does in LEGAL.items():
            does = changes.pop(name.removeprefix("a.cu ").replace("<", "_").rstrip(">"), does)
            if does is not None:
                kernels.append(Kernel(name, Counter(does)))
        self.assertFalse(changes)
        with mock.patch.multiple(rules, **EXPECTED):
            return list(check.findings(kernels))

    def assert_one(self, words, **changes):
        found = self.findings(**changes)
        self.assertEqual(len(found), 1, found)
        self.assertIn(words, found[0])

    def test_legal_kernels_pass(self):
        self.assertEqual(self.findings(), [])

    def test_rows_are_moved_by_128_bits(self):
        self.assert_one("accesses of less than 128 bits: 1 STG.64; rules.py has no exception",
                        Other={"STG.64": 1})
        self.assert_one("1 LDG.8", Other={"LDG.8": 1})
        self.assert_one("1 LDGSTS.64", Other={"LDGSTS.64": 1})
        self.assert_one("1 ST.32", Other={"ST.32": 1})
        self.assert_one("4 STG.32;", Copy_8={"LDG.128": 2, "STG.32": 4})
        self.assert_one("1 STG.16;", Copy_8={"STG.128": 1, "STG.32": 1, "STG.16": 1})

    def test_an_exception_is_needed_in_full(self):
        self.assert_one("needs STG.32 any more", Copy_8={"LDG.128": 2, "STG.128": 2})
        self.assert_one("needs LDG.16 any more", Plain_bf16={"STG.32": 9})
        self.assert_one("needs STL any more", Fails={})
        copy, plain = EXPECTED["NARROW"]
        with mock.patch.dict(EXPECTED, NARROW=(Excuse(copy.pattern, "STG.32:2", ""), plain)):
            self.assert_one("need STG.32:1, not STG.32:2")
        with mock.patch.dict(EXPECTED, NARROW=(copy, plain, Excuse(r"a\.cu Gone", "STG.32:*", ""))):
            self.assert_one("no kernel a\\.cu Gone needs STG.32 any more")
        with mock.patch.dict(EXPECTED, LOCAL=()):
            self.assert_one("Fails: local memory: 3 STL; rules.py has no exception")

    def test_one_exception_covers_a_kernel(self):
        also = Excuse(r"a\.cu F.*", "STL:*", "")
        with mock.patch.dict(EXPECTED, LOCAL=(*EXPECTED["LOCAL"], also)):
            found = "\n".join(self.findings())
        self.assertIn("Fails: local memory: 3 STL; rules.py has several exceptions", found)

    def test_a_kernel_of_elements_has_a_vectorised_form(self):
        self.assertIn("a.cu Copy<1>: goes element by element, and has no vectorised form",
                      self.findings(Copy_8=None))
        self.assert_one("there is no kernel a\\.cu Copy<(1)> any more", Copy_1=None)

    def test_tensor_cores_are_used_where_they_are_promised(self):
        self.assert_one("Product<bf16>: no instruction of the tensor cores",
                        Product_bf16={"STG.128": 1})
        self.assert_one("there is no kernel a\\.cu Product", Product_bf16=None)
        self.assert_one("Other: uses the tensor cores", Other={"HMMA": 1})

    def test_local_memory_is_not_used(self):
        self.assert_one("local memory: 1 STL; rules.py has no exception", Other={"STL.32": 1})
        self.assert_one("Fails: local memory: 1 LDL;", Fails={"STL.32": 1, "LDL.32": 1})
        self.assert_one("Sums<double>: local memory: 2 LDL", Sums_double={"LDL.64": 2})


if __name__ == "__main__":
    unittest.main()
