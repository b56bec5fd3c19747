#!/usr/bin/env bash
# The locks that the sources promise to hold, and the sanitizers: address and undefined behaviour on every test, threads on
# the targets without gRPC.
#
#   scripts/sanitize.sh [locks|address|thread]      all without an argument
#
# Locks: clang's thread-safety analysis compiles nothing and runs nothing. It reads every source that has to do with a
# mutex (common/mutex.h), which takes some five minutes of processor time.
#
# The sanitizers leave the toolkit's part out, whose libraries are not instrumented; the emulation of CUDA is in.
#
# Threads: Debian's gRPC, Abseil mutexes and libgomp are not instrumented and would report races that are none, so that
# run leaves gRPC out and gives OpenMP one thread, whatever a kernel asks for. Programs that a test damages on purpose may
# race for real (PlantedBugTest): they are left to the other runs.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install_test_tools.sh

configure() {  # NAME, of a preset
  [ -f "build-$1/build.ninja" ] || cmake --preset "$1" >/dev/null
}

# Clang 16, for clang 14 does not read all of our C++20. Only here: nobody needs it to build or to run.
locks() {
  scripts/install_deps.sh clang-16 libomp-16-dev
  configure apart  # The analysis reads one source at a time.
  local generated
  generated=$(ninja -C build-apart -t targets all | sed -n 's/^\(.*\.pb\.h\): .*/\1/p')
  # shellcheck disable=SC2086
  ninja -C build-apart $generated
  scripts/locks.py build-apart clang++-16
}

address() {
  configure address
  ninja -C build-address
  ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1 \
    ctest --test-dir build-address --output-on-failure --no-tests=error
}

thread() {
  configure thread
  local targets
  targets=$(ctest --test-dir build-thread -N -L tsan | sed -n 's/^ *Test *#[0-9]*: //p')
  [ -n "$targets" ] || { echo "sanitize: no test carries the label tsan" >&2; return 1; }
  # shellcheck disable=SC2086
  ninja -C build-thread $targets
  GTEST_FILTER="-*PlantedBugTest*" OMP_NUM_THREADS=1 OMP_THREAD_LIMIT=1 TSAN_OPTIONS="halt_on_error=1 suppressions=$PWD/scripts/tsan.supp" \
    ctest --test-dir build-thread --output-on-failure --no-tests=error -L tsan
}

case "${1:-all}" in
  locks) locks ;;
  address) address ;;
  thread) thread ;;
  all) locks && address && thread ;;
  *) echo "sanitize: wanted locks, address or thread, found '$1'" >&2; exit 2 ;;
esac
