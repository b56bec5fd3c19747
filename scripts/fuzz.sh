#!/usr/bin/env bash
# Fuzzing: libFuzzer makes inputs for the targets of tests/fuzz, with the address and undefined-behaviour sanitizers.
#
#   scripts/fuzz.sh [SECONDS] [TARGET...]      60 seconds a target, and all targets, where nothing else is said
#
# Ends with 1 where an input breaks a target: the input lies in build-fuzz/findings/TARGET. Mend the product, and keep the
# input in tests/fuzz/corpus/TARGET, which every test run reads. Inputs that reach new code are kept in
# build-fuzz/corpus/TARGET for the next run.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install_deps.sh clang-16 libclang-rt-16-dev

build=build-fuzz
if [ ! -f $build/build.ninja ]; then
  mkdir -p $build
  cmake --preset fuzzer >$build/configure.log 2>&1 || { tail -n 30 $build/configure.log >&2; exit 1; }
fi

seconds=60
if [[ "${1:-}" =~ ^[0-9]+$ ]]; then
  seconds=$1
  shift
fi
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
  mapfile -t targets < <(sed -n 's/^trainyard_fuzz_target(\([a-z_]*\) .*/\1/p' tests/fuzz/CMakeLists.txt)
fi
ninja -C $build "${targets[@]/#/fuzz_}" >$build/build.log 2>&1 || { grep -A 20 -m 3 FAILED $build/build.log >&2; exit 1; }

# Debian's protobuf and Abseil are built without sanitizers, and hand over containers that the sanitizer saw half of.
export ASAN_OPTIONS=detect_container_overflow=0
export UBSAN_OPTIONS=print_stacktrace=1
status=0
for target in "${targets[@]}"; do
  kept=$build/corpus/$target
  findings=$build/findings/$target
  mkdir -p "$kept" "$findings"
  log=$findings/log
  # A run takes at most ten seconds and 2 GB, and asks for at most 1 GB at once: inputs have at most 8 KiB.
  if nice $build/tests/fuzz_"$target" "$kept" "tests/fuzz/corpus/$target" -max_total_time="$seconds" -max_len=8192 \
    -timeout=10 -rss_limit_mb=2048 -malloc_limit_mb=1024 -artifact_prefix="$findings/" -print_final_stats=1 >"$log" 2>&1; then
    awk -v target="$target" '/stat::number_of_executed_units/ { runs = $2 } /stat::average_exec_per_sec/ { rate = $2 }
      / cov: / { cov = $0; sub(/.* cov: /, "", cov); sub(/ .*/, "", cov) }
      END { printf "%-16s %10d runs  %6d a second  %6d edges  no finding\n", target, runs, rate, cov }' "$log"
  else
    status=1
    echo "$target: a finding; the log is $log" >&2
    grep -a -m 4 -E 'ERROR: |SUMMARY: |runtime error|Check failed|CHECK|Test unit written' "$log" >&2 || tail -n 5 "$log" >&2
  fi
done
exit $status
