#!/usr/bin/env bash
# Every layout of every family for up to eight ranks. First that nothing in it is left to luck: any two accesses of a rank
# to the same memory are ordered (tests/train/start/order_check_test.cc). Then beside one rank: losses, gradients, and the
# weights after six steps, in f64, while communication is held up by a printed seed, and what is sent beside the formula.
# CI runs those of up to two ranks, and 40 others of each family. Without FAMILY also those of up to four ranks of training
# on pairs of answers, and of texts while a job trains; and thirty layouts of eight ranks each of an adapter, chats and pairs.
#
#   scripts/layouts.sh [FAMILY]     FAMILY: as in a spec, for example llama; all without it
set -euo pipefail
cd "$(dirname "$0")/.."
case "${1:-}" in
  -*) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' scripts/layouts.sh; exit 0 ;;
esac
build=${TRAINYARD_BUILD:-build}
tests="Families/Layouts.*/${1:+${1}_}*"
export TRAINYARD_LAYOUTS=all
ninja -C "$build" train_order_test train_step_test
"$build/tests/train_step_test" --gtest_filter="$tests" --gtest_list_tests | grep -c '^  ' >/dev/null ||
  { echo "layouts: wanted a family of tests/train/step/layouts_test.cc, found '$1'" >&2; exit 2; }
"$build/tests/train_order_test" --gtest_filter="*Families/OrderTest.*/${1:+${1}_}*" --gtest_brief=1
"$build/tests/train_step_test" --gtest_filter="$tests" --gtest_brief=1
if [ $# -eq 0 ]; then
  ninja -C "$build" train_preference_test train_generated_test
  "$build/tests/train_preference_test" --gtest_filter="*PreferenceLayouts*:*TunedLayouts*" --gtest_brief=1
  "$build/tests/train_generated_test" --gtest_filter="Generated.IsThatOfOneRankInEveryLayout" --gtest_brief=1
fi
