"""Proves that two clones share what ccache holds: the second one compiles nothing. Two projects with the same sources
are built with cmake/Toolchain.cmake, as Trainyard is: joined sources, a precompiled header, and checks that name their
source. Bug that the test finds: a path of the clone in what the compiler reads, so that each clone compiles all anew."""
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

FILES = {
    "CMakeLists.txt": f"""
cmake_minimum_required(VERSION 3.25)
project(clone LANGUAGES CXX)
set(CMAKE_BUILD_TYPE Release)
list(APPEND CMAKE_MODULE_PATH {ROOT}/cmake)
include(Toolchain)
add_library(clone STATIC part/one.cc part/two.cc)
target_include_directories(clone PRIVATE ${{CMAKE_SOURCE_DIR}})
target_precompile_headers(clone PRIVATE <string>)
""",
    "part/where.h": "#pragma once\n#define WHERE __FILE__\ninline const char* Header() { return __FILE__; }\n",
    "part/one.cc": '#include "part/where.h"\nconst char* One() { return WHERE; }\n',
    "part/two.cc": '#include "part/where.h"\nconst char* Two() { return Header(); }\n',
}


class ClonesShareTheCache(unittest.TestCase):
    def test_the_second_clone_compiles_nothing(self):
        with tempfile.TemporaryDirectory() as directory:
            environment = os.environ | {"CCACHE_DIR": f"{directory}/cache"}
            environment.pop("CCACHE_DISABLE", None)

            def run(*command):
                return subprocess.run(command, env=environment, check=True, text=True, stdout=subprocess.PIPE).stdout

            def compiled():
                return int(re.search(r"^cache_miss\s+(\d+)", run("ccache", "--print-stats"), re.MULTILINE)[1])

            counts = []
            for name in ("first", "second"):
                clone = Path(directory, name)
                for path, text in FILES.items():
                    (clone / path).parent.mkdir(parents=True, exist_ok=True)
                    (clone / path).write_text(text)
                run("cmake", "-G", "Ninja", "-S", str(clone), "-B", str(clone / "build"))
                run("ninja", "-C", str(clone / "build"))
                counts.append(compiled())
            self.assertEqual(counts, [2, 2], "the header and the joined sources, both by the first clone")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
