#!/usr/bin/env python3
"""Proves that device_code.py reads every instruction of an object as NVIDIA's disassembler does.

  tests/cuda_code/disassembler_test.py CUOBJDUMP OBJECT...
"""
import subprocess
import sys
import unittest
from collections import Counter
from pathlib import Path

from device_code import code_of_object, instruction
from listing import as_rules_say, functions

CUOBJDUMP, *OBJECTS = sys.argv[1:]


class Disassembler(unittest.TestCase):
    def test_agrees_on_every_instruction(self):
        for path in OBJECTS:
            run = subprocess.run([CUOBJDUMP, "-sass", path], stdout=subprocess.PIPE, text=True,
                                 check=True)
            listed = functions(run.stdout)
            read = code_of_object(Path(path).read_bytes())
            self.assertEqual(sorted(read), sorted(name for name, _ in listed))
            for name, lines in listed:
                for shown, low, high in lines:
                    self.assertEqual(instruction(low, high), as_rules_say(shown),
                                     f"{name}: {shown} {low:#x} {high:#x}")
                names = Counter(as_rules_say(shown) for shown, _, _ in lines)
                del names[None], names["EXIT"]
                self.assertEqual(read[name], names, name)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
