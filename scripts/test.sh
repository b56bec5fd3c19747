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
ctest --test-dir "${TRAINYARD_BUILD:-build}" --output-on-failure --no-tests=error -j 3
step "done"
