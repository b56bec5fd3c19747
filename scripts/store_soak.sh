#!/usr/bin/env bash
# Kills a real controller under load and compares the clients' history with a model (goal R1); then the time from a start to
# the first answer with 100,000 jobs (goal R3). Arguments go to the first run, for instance --kills 100 --jobs 10000.
set -euo pipefail
cd "$(dirname "$0")/.."
ninja -C build trainyard-controller store_soak
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
build/bench/store_soak --controller build/bin/trainyard-controller --state "$directory/soak" "$@"
build/bench/store_soak --controller build/bin/trainyard-controller --state "$directory/recover" --recover --jobs 100000
