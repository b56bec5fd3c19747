#!/usr/bin/env bash
# Installs what is missing, builds everything, runs every test, a shortened quickstart among them.
# On two cores and without a compiler cache this takes 35 minutes (README); half an hour is the goal.
set -euo pipefail
cd "$(dirname "$0")/.."
started=$SECONDS
step() { printf '\n== %s (%d s)\n' "$1" $((SECONDS - started)); }

step "packages"
scripts/install_test_tools.sh
step "build"
scripts/build.sh
step "tests"  # Some of them wait for processes and clocks. Four at a time keep two cores busy.
build=${TRAINYARD_BUILD:-build}
ctest --test-dir "$build" --output-on-failure --no-tests=error -j 4 || {
  code=$?
  # The output of a failing test can be long. What it says of the failure is repeated at the end.
  log=$build/Testing/Temporary
  while IFS=: read -r number name; do
    step "$name failed"
    awk -v start="^$number/[0-9]+ Test" '$0 ~ start {on = 1} on; /time elapsed/ {on = 0}' \
      "$log/LastTest.log" >"$log/failed.log"
    grep -E -A 9 ': Failure$|^Traceback|^AssertionError|^\[  FAILED  \]' "$log/failed.log" |
      head -n 60 || true
    tail -n 30 "$log/failed.log"
  done <"$log/LastTestsFailed.log"
  exit $code
}
step "done"
