#!/usr/bin/env bash
# Installs what is missing, builds everything, runs every test, a shortened quickstart among them.
# From a bare machine at most 30 minutes on two cores.
set -euo pipefail
cd "$(dirname "$0")/.."
started=$SECONDS
step() { printf '\n== %s (%d s)\n' "$1" $((SECONDS - started)); }

step "packages"
scripts/install_test_tools.sh
step "build"
scripts/build.sh
step "tests"  # Many of them wait for processes and clocks more than they compute.
build=${TRAINYARD_BUILD:-build}
ctest --test-dir "$build" --output-on-failure --no-tests=error -j 3 || {
  code=$?
  # The output of a failing test can be long. What it says of the failure is repeated at the end.
  step "what failed"
  grep -E -A 9 ': Failure$|^Traceback|^AssertionError|^\[  FAILED  \]' \
    "$build/Testing/Temporary/LastTest.log" | head -n 100
  exit $code
}
step "done"
