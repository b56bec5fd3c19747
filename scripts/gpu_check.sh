#!/usr/bin/env bash
# Everything that only a GPU can show, on a machine that has one and perhaps nothing else, in two
# calls, most valuable first. Writes results.json, anew after each step, check.log and summary.txt,
# whose first screen says what to mend first.
#
#   scripts/gpu_check.sh [--out DIR] [--after RESULTS.json [--changed MODEL]...] [BUNDLE.tar.xz]
#
# The first call ends within 400 s. The second, which --after asks for, takes 190 s: it repeats what
# failed in the results of the first, and measures the models that a mend has changed. Results go to
# --out, to $OUT, or to ./gpu_check; what an earlier check left there is kept, under numbers. Without
# BUNDLE (scripts/gpu_bundle.sh makes it) the unpacked bundle that this script lies in is checked.
# scripts/gpu_check/calls.py says what each call runs.
#
# NVIDIA's libraries are found in CUDA's own directories or in Python's wheels.
set -euo pipefail

usage() {
  echo "gpu_check: $1; wanted scripts/gpu_check.sh [--out DIR] [--after RESULTS.json" \
    "[--changed MODEL]...] [BUNDLE.tar.xz]" >&2
  exit 2
}

out=${OUT:-$PWD/gpu_check}
options=()
bundle=
while [ $# -gt 0 ]; do
  case "$1" in
    --out|--after|--changed|--scale) [ $# -gt 1 ] || usage "$1 wants a value" ;;
  esac
  case "$1" in
    --out) out=$2; shift 2 ;;
    --after|--changed|--scale) options+=("$1" "$2"); shift 2 ;;
    -*) usage "unknown option $1" ;;
    *) [ -z "$bundle" ] || usage "two bundles, $bundle and $1"; bundle=$1; shift ;;
  esac
done
mkdir -p -- "$out"
[ -w "$out" ] || { echo "gpu_check: cannot write to $out" >&2; exit 2; }
out=$(cd -- "$out" && pwd)

root=$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd)
if [ -n "$bundle" ]; then
  unpacked=$(mktemp -d)
  trap 'rm -rf "$unpacked"' EXIT
  # Not every machine has xz; Python has a reader of its own.
  tar -xJf "$bundle" -C "$unpacked" 2>/dev/null || python3 -m tarfile -e "$bundle" "$unpacked"
  root=$unpacked/trainyard
fi
[ -x "$root/bin/cuda_kernels_test" ] || {
  echo "gpu_check: no bin/cuda_kernels_test in $root; wanted an unpacked bundle, or" \
    "BUNDLE.tar.xz, which scripts/gpu_bundle.sh makes" >&2
  exit 2
}

# The directory of each library that is not found without being told. The check itself says what is
# missing after that.
wheels=$(python3 -c 'import site; print(site.getsitepackages()[0])' 2>/dev/null || echo /nowhere)
for library in libcudart.so.13 libcublasLt.so.13 libcudnn.so.9 libnccl.so.2 libnvrtc.so.13; do
  case "$(ldconfig -p 2>/dev/null)" in *"$library"*) continue ;; esac
  IFS=: read -r -a told <<<"${LD_LIBRARY_PATH:-}"
  for directory in ${told[@]+"${told[@]}"}; do
    [ ! -e "$directory/$library" ] || continue 2
  done
  found=$(find /usr/local/cuda*/ "$wheels/nvidia" -name "$library" -print -quit 2>/dev/null || true)
  [ -z "$found" ] ||
    export LD_LIBRARY_PATH=$(dirname "$found")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
done

# The check ends its step, and says what it left out, before the bundle goes.
python3 "$root/scripts/gpu_check/main.py" --root "$root" --out "$out" --spent "$SECONDS" \
  ${options[@]+"${options[@]}"} &
check=$!
interrupted=1
trap 'interrupted=1; kill -TERM "$check" 2>/dev/null || true' INT TERM HUP
while [ -n "$interrupted" ]; do
  interrupted=
  status=0
  wait "$check" || status=$?
done
exit "$status"
