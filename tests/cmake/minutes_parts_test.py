"""Proves that scripts/minutes.py sees what makes a build dearer: a small project has targets of the quickstart's names. A heavy
header in a header that all sources include fails the check, and so does machine code that each source has a copy of. A build
that is not whole has no figure. Bugs that the test finds: a figure without what headers include, or without machine code."""
import contextlib
import io
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import minutes  # noqa: E402

PROJECT = """
cmake_minimum_required(VERSION 3.25)
project(small LANGUAGES CXX)
set(CMAKE_UNITY_BUILD ON CACHE BOOL "")
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
add_library(header STATIC header.cc)
target_precompile_headers(header PRIVATE <map> <string>)
foreach(name trainyard trainyard-controller trainyard-worker trainyard-trainer)
  add_executable(${name} main.cc)
  target_precompile_headers(${name} REUSE_FROM header)
  set_target_properties(${name} PROPERTIES UNITY_BUILD OFF)
endforeach()
"""
SHARED = "#pragma once\n#include <map>\n#include <string>\n"
MAIN = '#include "shared.h"\nint main(int count, char**) { return int(std::map<int, std::string>{{1, "a"}}.size()) - count; }\n'
COPIED = "inline int Copied(int n) { int sum = n; %s return sum; }\n" % "".join(
    f"if (n > {i}) sum += {i} * n + sum / (n + {i});" for i in range(1, 800))


class Minutes(unittest.TestCase):
    def setUp(self):
        self.directory = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.enterContext(mock.patch.object(minutes, "ROOT", self.directory))
        self.enterContext(mock.patch.object(minutes, "KEPT", self.directory / "minutes.json"))
        for name, text in {"CMakeLists.txt": PROJECT, "shared.h": SHARED, "main.cc": MAIN, "header.cc": "int x;\n"}.items():
            self.write(name, text)
        self.run_quietly("cmake", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-S", self.directory, "-B", self.directory / "build")

    def write(self, name, text):
        (self.directory / name).write_text(text)

    def run_quietly(self, *command):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def build(self):
        self.run_quietly("ninja", "-C", self.directory / "build")

    def minutes(self, *arguments):
        """What the script prints, and what it ends with."""
        said = io.StringIO()
        with mock.patch.object(sys, "argv", ["minutes.py", str(self.directory / "build"), *arguments]), \
                contextlib.redirect_stdout(said):
            try:
                minutes.main()
            except SystemExit as end:
                return said.getvalue(), str(end.code)
        return said.getvalue(), ""

    def test_what_makes_a_build_dearer_fails_the_check(self):
        self.assertIn("skipped: wanted a build of everything", self.minutes("--check")[0])
        self.build()
        self.assertIn("skipped: wanted recorded figures", self.minutes("--check")[0])
        self.assertEqual(self.minutes("--record")[1], "")
        said, error = self.minutes("--check")
        self.assertEqual(error, "")
        self.assertRegex(said, r"quickstart: \d+ processor seconds of work \(6 compilations\)")

        self.write("shared.h", SHARED + "#include <regex>\n")
        self.build()
        self.assertRegex(self.minutes("--check")[1], r"quickstart: \d+ processor seconds of work; minutes.json has \d+")

        self.write("shared.h", SHARED + COPIED)
        self.write("main.cc", MAIN.replace("- count;", "- Copied(count);"))
        self.build()
        grown = self.minutes("--check")
        self.assertIn("wanted a change of at most a tenth", grown[1], grown[0])


if __name__ == "__main__":
    unittest.main()
