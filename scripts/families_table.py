#!/usr/bin/env python3
"""Runs what proves each family of models, and writes the figures into the table of docs/families.md.

  scripts/families_table.py --python PYTHON

PYTHON is an interpreter with `transformers` and `torch`. tests/golden/check_export.py names their versions. Nothing is
written if a proof fails. Needs the build; takes about ten minutes on two cores.
"""
import argparse
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = ROOT / "build"
BEGIN, END = "<!-- scripts/families_table.py writes from here -->\n", "<!-- to here -->\n"
HEADINGS = ["family", "logits", "gradients", "12 steps", "layouts", "100 steps", "export"]


def run_tests(program, pattern, **environment):
    """The tests' properties, each with `name`, `classname` and `value_param`."""
    with tempfile.TemporaryDirectory() as scratch:
        out = pathlib.Path(scratch) / "tests.json"
        subprocess.run([BUILD / "tests" / program, f"--gtest_filter={pattern}", f"--gtest_output=json:{out}",
                        "--gtest_brief=1"], check=True, env=os.environ | {
                            "TRAINYARD_SOURCE": str(ROOT), "TRAINYARD_BIN": str(BUILD / "bin")} | environment)
        tests = [test for suite in json.loads(out.read_text())["testsuites"] for test in suite["testsuite"]]
    assert tests, f"{program} has no test {pattern}"
    return tests


def family_of(case, families):
    return max((family for family in families if case == family or case.startswith(family + "_")), key=len)


def golden(families, cells):
    columns = {"LogitsAreThose": "logits", "GradientsAreThose": "gradients", "TwelveStepsAreThose": "12 steps",
               "TwelveStepsOnFourRanksAreThose": "12 steps"}
    for test in run_tests("train_hf_test", "Hf/GoldenModel.*Those/*"):
        what, case = test["name"].split("/")
        row = cells[family_of(case, families)]
        row[columns[what]] = max(float(test["difference"]), row.get(columns[what], 0))


def layouts(families, cells):
    for test in run_tests("train_step_test", "Families/Layouts.*", TRAINYARD_LAYOUTS="all"):
        row = cells[family_of(test["name"].split("/")[1], families)]
        count, worst = row.get("layouts", (0, 0))
        row["layouts"] = count + 1, max(worst, float(test["difference"]))


def training(cells):
    for test in run_tests("e2e_families_test", "All/FamilyOfModels.*", TRAINYARD_FAMILIES="all"):
        cells[test["name"].split("/")[1]]["100 steps"] = f"{test['first_losses']} to {test['last_losses']}"


def exports(python, cells):
    said = subprocess.run([python, ROOT / "tests/golden/check_export.py", BUILD / "bin"], check=True,
                          capture_output=True, text=True).stdout
    for family, reported, found in re.findall(r"^(\w+): reported (\S+), \w+ (\S+), .*: good$", said, re.M):
        cells[family]["export"] = abs(float(found) - float(reported)) / float(reported)


def shown(value):
    if isinstance(value, tuple):
        return f"{value[0]}, {value[1]:.0e}"
    return value if isinstance(value, str) else f"{value:.0e}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True)
    arguments = parser.parse_args()
    models = json.loads(subprocess.run([BUILD / "bin/trainyard", "models", "-o", "json"], check=True,
                                       capture_output=True, text=True).stdout)
    cells = {family: {} for family in sorted({model["family"] for model in models})}
    golden(cells.keys(), cells)
    layouts(cells.keys(), cells)
    training(cells)
    exports(arguments.python, cells)
    lines = [HEADINGS, ["---"] * len(HEADINGS)]
    lines += [[f"`{family}`"] + [shown(row.get(heading, "-")) for heading in HEADINGS[1:]] for family, row in cells.items()]
    table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    revision = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], check=True, capture_output=True,
                              text=True).stdout.strip()
    made = f"\nMeasured on {datetime.date.today()} at revision {revision}, by `scripts/families_table.py`.\n\n"
    page = ROOT / "docs/families.md"
    before, rest = page.read_text().split(BEGIN)
    page.write_text(before + BEGIN + table + made + END + rest.split(END)[1])


if __name__ == "__main__":
    sys.exit(main())
