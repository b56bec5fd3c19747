#!/usr/bin/env bash
# Configures (once) and builds into build/: everything, or the targets named.
#
#   scripts/build.sh [TARGET...]      TRAINYARD_BUILD=DIR builds elsewhere
set -euo pipefail
cd "$(dirname "$0")/.."
build=${TRAINYARD_BUILD:-build}
if [ ! -f "$build/build.ninja" ]; then
  mkdir -p "$build"
  cmake -G Ninja -B "$build" >"$build/configure.log" 2>&1 || { tail -n 30 "$build/configure.log" >&2; exit 1; }
fi
# A terminal gets ninja's one moving line; a log gets its outcome, and the errors.
if [ -t 1 ]; then
  exec ninja -C "$build" "$@"
fi
log="$build/build.log"
ninja -C "$build" "$@" >"$log" 2>&1 || { grep -A 20 -m 3 'FAILED' "$log" >&2; tail -n 5 "$log" >&2; exit 1; }
echo "Built into $build/"
