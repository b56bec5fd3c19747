#!/usr/bin/env bash
# Long runs that show how much faults cost, and that they cost nothing else. With a build that exists.
#
#   scripts/soak.sh --minutes 60       R15: a random rank, worker daemon or controller is killed every minute. Effective
#                                      time, restarts, lost work, digests against undisturbed runs. At least 88 %
#   scripts/soak.sh --kills 100        R13: a random rank of eight is killed. Detection, and time to the next step
#   scripts/soak.sh --preemptions 20   R16: the worker that runs the job is ended in order. No step is lost
#   scripts/soak.sh --seeds 10000      R10: the deterministic simulation, from seed 1
#   scripts/soak.sh --chaos 600        random faults of every kind for so many seconds, as the test of 30 s has them
#
# Each takes --seed N and prints the one it drew. Wants two idle cores, and root or unprivileged user namespaces.
set -euo pipefail
cd "$(dirname "$0")/.."

build=${TRAINYARD_BUILD:-build}
export TRAINYARD_BIN=${TRAINYARD_BIN:-$build/bin}
case "${1:-}" in
  --minutes | --kills | --preemptions) exec python3 tests/chaos/measure.py "$@" ;;
  --seeds) exec "$build/tests/simulate" "$@" ;;
  --chaos) shift; exec python3 tests/chaos/chaos.py --seconds "$@" ;;
  *) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' scripts/soak.sh >&2; exit 2 ;;
esac
