#!/usr/bin/env bash
# A hundred steps of a tiny model of each family of language models on English text, through the service on four ranks:
# the loss falls, and a run that is killed in its middle ends with the bits of an undisturbed one. CI runs one family.
#
#   scripts/families.sh [FAMILY]     FAMILY: as in a spec, for example llama; all without it
set -euo pipefail
cd "$(dirname "$0")/.."
case "${1:-}" in
  -*) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' scripts/families.sh; exit 0 ;;
esac
build=${TRAINYARD_BUILD:-build}
ninja -C "$build" e2e_families_test
export TRAINYARD_FAMILIES=all TRAINYARD_BIN=$PWD/$build/bin TRAINYARD_SOURCE=$PWD
"$build/tests/e2e_families_test" --gtest_filter="*/${1:-*}" --gtest_brief=1
