#!/usr/bin/env python3
"""Proves that every rule finds what it is there to find, and keeps quiet about the legal form beside it.

Each case is (rule, files that break it, files that do not); a rule without a case fails the test.
"""
import sys
import tempfile
import unittest
from pathlib import Path

import rules
from tidy import Tree

LONG_BODY = "int F() {\n" + "  int x = 0;\n" * 70 + "}\n"
FINE_BODY = "int F() {\n" + "  int x = 0;\n" * 68 + "}\n"

CASES = {
    "columns": ({"a.cc": "x" * 101, "a.proto": "x" * 101}, {"a.cc": "x" * 100}),
    "document_columns": ({"a.md": "word " * 21, "docs/b.md": "```\n" + "x " * 60 + "\n```\n" + "y " * 60},
                         {"a.md": "word " * 19, "b.md": "```\n" + "x " * 60 + "\n```\n| " + "y " * 60 + "|\n" + "z" * 120}),
    "file_length": ({"a.cc": "\n" * 600}, {"a.cc": "\n" * 599}),
    "functions": ({"a.cc": LONG_BODY, "b.cc": "void G(int a, int b, int c, int d, int e, int f) {\n}\n"},
                  {"a.cc": FINE_BODY, "b.cc": "void G(std::map<int, int> a, int b, int c, int d, int e) {\n}\n"}),
    "include_directions": ({"kernels/a.h": '#include "models/b.h"', "models/a.cc": '#include "train/b.h"',
                            "controller/a.cc": '#include "worker/daemon/b.h"', "worker/channel/a.h": '#include "train/b.h"'},
                           {"models/a.cc": '#include "kernels/b.h"\n#include "common/c.h"',
                            "worker/trainer/a.cc": '#include "worker/channel/b.h"'}),
    "folder_cycles": ({"models/a.cc": '#include "models/program/b.h"', "models/program/b.h": '#include "models/a.h"', "models/a.h": "",
                       "train/a.h": '#include "train/x/b.h"', "train/x/b.h": '#include "train/y/c.h"',
                       "train/y/c.h": '#include "train/a.h"'},
                      {"models/a.cc": '#include "models/program/b.h"', "models/program/b.h": '#include "models/program/c.h"',
                       "models/program/c.h": "", "worker/a_main.cc": '#include "worker/x/b.h"', "worker/b.h": "",
                       "worker/x/b.h": '#include "worker/b.h"'}),
    "generated_headers": ({"controller/jobs/a.cc": '#include "trainyard/v1/job.pb.h"'},
                          {"controller/service/a.cc": '#include "trainyard/v1/job.pb.h"'}),
    "exceptions": ({"train/a.cc": "void F() { try {\n} catch (...) {\n} }"}, {"train/yaml_adapter.cc": "void F() { try {} catch (...) {} }",
                                                                           "train/b.cc": "// try { this }\n"}),
    "banned": ({"train/a.cc": "auto x = getenv(kName);", "train/b.cc": "void F() { std::exit(1); }", "c.cc": "using namespace std;",
                "kernels/a.cc": "const auto deadline = absl::Now() + timeout;", "worker/a.h": "mutable std::mutex mutex_;",
                "worker/b.cc": "const std::lock_guard lock(mutex_);", "worker/c.cc": "std::unique_lock<std::mutex> lock(mutex_);",
                "worker/d.h": "std::condition_variable changed_;", "worker/e.cc": "std::scoped_lock lock(a_, b_);",
                "worker/f.cc": "void F(int fd) { ::close(fd); }", "train/c.cc": "return json.dump();", "train/d.cc": "const auto json = OrderedJson::parse(text);"},
               {"train/a_main.cc": "auto x = getenv(kName);", "train/b.cc": 'const char* k = "getenv";',
                "common/clock.cc": "return absl::Now();", "common/file_descriptor.h": "if (fd >= 0) ::close(fd);", "common/mutex.h": "std::mutex mutex_;",
                "common/json.cc": "return value.dump(indent);",
                "tests/a.h": "std::mutex mutex_;", "worker/a.h": "Mutex mutex_; // Not std::mutex."}),
    "mutexes_guard": ({"a.h": "mutable Mutex mutex_;\nint x_;  // ABSL_GUARDED_BY(mutex_)"},
                      {"a.h": "mutable Mutex mutex_;\nint x_ ABSL_GUARDED_BY(mutex_);", "a.cc": "Mutex mutex;"}),
    "mutations": ({"a.cc": "x < y x < y", "tests/mutations/a.toml": "[[bug]]\nfile='a.cc'\nline='x < y'\nwith='x'\ntests=['t:*']\nharm='h'",
                   "tests/mutations/b.toml": "[[bug]]\nfile='no.cc'\nline='x'\nwith='y'\ntests=['t:*']\nharm='h'",
                   "tests/mutations/c.toml": "[[bug]]\nfile='a.cc'\nline='x < y x'\nwith='y'\nharm='h'",
                   "tests/mutations/d.toml": "[[bug]]\nfile='a.cc'\nline='x < y x'\nwith='x < y x'\ntests=['t:*']\nharm='h'"},
                  {"a.cc": "x < y", "tests/mutations/a.toml": "[[bug]]\nfile='a.cc'\nline='x < y'\nwith='x'\ntests=['t:*']\nharm='h'"}),
    "mutable_globals": ({"a.cc": "static int counter = 0;", "b.cc": "std::vector<int> all;"},
                        {"a.cc": "constexpr int kCounter = 0;\nconst std::string kName = F();\nint F();"}),
    "op_files": ({"kernels/elementwise/swish.h": "struct SwishArgs {};"},
                 {"kernels/elementwise/swish.h": "struct SwishArgs {};", **{path: '#include "kernels/elementwise/swish.h"' for path in (
                     "kernels/cpu/elementwise/swish.cc", "tests/kernels/elementwise/swish_test.cc", "bench/kernels/swish_bench.cc",
                     "models/program/ops/swish.cc")}}),
    "ops_apart": ({"kernels/cpu/kernels.h": '#include "kernels/ops.h"'},
                  {"kernels/cpu/backend.cc": '#include "kernels/ops.h"', "kernels/cpu/elementwise/add.cc": '#include "kernels/elementwise/add.h"'}),
    "products_bound_once": ({"models/program/ops/a.cc": '#include "kernels/products/matmul.h"'},
                            {"models/program/product.cc": '#include "kernels/products/matmul.h"',
                             "models/program/ops/a.cc": '#include "models/program/product.h"'}),
    "operands_by_name": ({"models/program/ops/a.cc": "return instance.inputs[3];"},
                         {"models/program/ops/a.cc": "return instance.inputs[kWeight];"}),
    "tests_are_built": ({"tests/a/b/x_test.cc": "", "tests/a/CMakeLists.txt": "y_test",
                         "tests/CMakeLists.txt": "file(GLOB t CONFIGURE_DEPENDS */*_test.cc)"},
                        {"tests/a/x_test.cc": "", "tests/a/CMakeLists.txt": "trainyard_test(x_test SRCS x_test.cc)",
                         "tests/b/c/y_test.cc": "", "tests/b/CMakeLists.txt":
                             "file(GLOB t CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*/*_test.cc)"}),
    "no_disabled_tests": ({"a.cc": "TEST(X, DISABLED_Y) {}"}, {"a.cc": "// DISABLED_ in a comment"}),
    "proto_enums": ({"a.proto": "enum JobState {\n  JOB_STATE_OK = 0;\n}"},
                    {"a.proto": "enum JobState {\n  JOB_STATE_UNSPECIFIED = 0;  // None.\n  JOB_STATE_OK = 1;\n}"}),
    "metric_names": ({"worker/metrics.h": 'Count(\n "new_total"', "docs/metrics.md": "`trainyard_old_total`"},
                     {"worker/metrics.h": '"trainyard_loss"', "docs/metrics.md": "`trainyard_loss` `trainyard_mfu_ratio`",
                      "proto/trainyard/v1/step.proto": '  double loss = 3\n      [(number) = {help: "H."}];\n'
                      '  optional double mfu = 9 [(number) = {\n    metric: "mfu_ratio"\n'}),
    "folders_map": ({"docs/ARCHITECTURE.md": "| `gone/` | x |", "there/a.cc": ""},
                    {"docs/ARCHITECTURE.md": "| `docs/` | x |\n| `there/` | x |", "there/a.cc": ""}),
    "todos": ({"a.cc": "// TODO: later"}, {"a.cc": "// TODO(12): later"}),
    "headers_once": ({"a.h": "// A.\n"}, {"a.h": "// A.\n#pragma once\n"}),
    "types_once": ({"worker/b.h": "namespace a {\nstruct Order final : Base {};\n}"
                    "\nnamespace x::y {\ntemplate <typename T>\nclass Decoder {\n  int F() { return 1; }\n};\n}",
                    "train/d.h": "namespace x::y {\nclass Decoder {};\n}", "common/a.h": "namespace a {\nstruct Order {\n};\n}"},
                   {"a.h": "namespace a {\nstruct Order;\nenum class Kind : int { kA };\nstruct Order {\n  struct Kind {};\n};\n}",
                    "b.h": "namespace b {\nstruct Order {};\n}", "c.h": "namespace a {\nclass Order;\nvoid F(struct Order& order) {\n}\n"
                    "template <>\nstruct Kinds<Order> {};\nnamespace {\nstruct Order {};\n}\n}"}),
    "opening_comment": ({"a.h": "#pragma once\n"}, {"a.h": "// What it is.\n"}),
}


class RulesTest(unittest.TestCase):
    def findings(self, rule, files):
        with tempfile.TemporaryDirectory() as root:
            for name, text in files.items():
                (Path(root) / name).parent.mkdir(parents=True, exist_ok=True)
                (Path(root) / name).write_text(text)
            return list(rule(Tree(root, sorted(files))))

    def test_every_rule_has_a_case(self):
        self.assertEqual(sorted(CASES), sorted(r.__name__ for r in rules.ALL))

    def test_every_broken_file_is_found(self):
        for rule in rules.ALL:
            broken = CASES[rule.__name__][0]
            found = self.findings(rule, broken)
            for name in broken:
                if name == "CMakeLists.txt" or name.endswith(("/CMakeLists.txt", "README.md", "metrics.h", "there/a.cc")):
                    continue  # Scenery of the case.
                with self.subTest(rule=rule.__name__, file=name):
                    self.assertTrue(any(name in f for f in found), found)

    def test_the_legal_form_passes(self):
        for rule in rules.ALL:
            with self.subTest(rule=rule.__name__):
                self.assertEqual(self.findings(rule, CASES[rule.__name__][1]), [])


if __name__ == "__main__":
    sys.exit(unittest.main())
