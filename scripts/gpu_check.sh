#!/usr/bin/env bash
# Everything that only a GPU can show, on a machine that has one and perhaps nothing else, in three calls, most valuable
# first. Writes results.json, anew after every step, and check.log.
#
#   scripts/gpu_check.sh [--call N] [--minutes N] [--out DIR] [BUNDLE.tar.gz]
#
# Without options: the first call, 9 minutes, ./gpu_check/call-1, the unpacked bundle that this script lies in. What an
# earlier check left in DIR is kept, under numbers. `ninja -C build package` makes the bundle, build/trainyard-*.tar.gz.
# scripts/gpu_check/calls.py says what each call runs.
#
# NVIDIA's libraries (cuBLAS, cuDNN, NCCL, NVRTC) are found in CUDA's own directories or in Python's wheels.
set -euo pipefail

usage() {
  echo "gpu_check: $1; wanted scripts/gpu_check.sh [--call 1|2|3] [--minutes N] [--out DIR] [BUNDLE.tar.gz]" >&2
  exit 2
}

call=1
minutes=9
out=
bundle=
while [ $# -gt 0 ]; do
  case "$1" in
    --call|--minutes|--out) [ $# -gt 1 ] || usage "$1 wants a value" ;;
  esac
  case "$1" in
    --call) call=$2; shift 2 ;;
    --minutes) minutes=$2; shift 2 ;;
    --out) out=$2; shift 2 ;;
    -*) usage "unknown option $1" ;;
    *) [ -z "$bundle" ] || usage "two bundles, $bundle and $1"; bundle=$1; shift ;;
  esac
done
case "$call" in [123]) ;; *) usage "no call $call" ;; esac
out=${out:-$PWD/gpu_check/call-$call}
mkdir -p -- "$out"
[ -w "$out" ] || { echo "gpu_check: cannot write to $out" >&2; exit 2; }
out=$(cd -- "$out" && pwd)

root=$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd)
if [ -n "$bundle" ]; then
  root=$(mktemp -d)
  trap 'rm -rf "$root"' EXIT
  tar -xzf "$bundle" -C "$root" --strip-components=1
fi
[ -x "$root/bin/cuda_kernels_test" ] || { echo "gpu_check: no bin/cuda_kernels_test in $root; wanted an unpacked bundle, or BUNDLE.tar.gz, which 'ninja -C build package' makes" >&2; exit 2; }

# The directory of each library that is not found without being told.
for library in libcublasLt.so.13 libcudnn.so.9 libnccl.so.2 libnvrtc.so.13; do
  case "$(ldconfig -p 2>/dev/null)" in *"$library"*) continue ;; esac
  IFS=: read -r -a told <<<"${LD_LIBRARY_PATH:-}"
  for directory in ${told[@]+"${told[@]}"}; do
    [ ! -e "$directory/$library" ] || continue 2
  done
  found=$(find /usr/local/cuda*/ "$(python3 -c 'import site; print(site.getsitepackages()[0])' 2>/dev/null || echo /nowhere)/nvidia" \
            -name "$library" -print -quit 2>/dev/null || true)
  [ -n "$found" ] || { echo "gpu_check: $library not found: not in ldconfig, LD_LIBRARY_PATH, /usr/local/cuda*, or Python's nvidia wheels" >&2; exit 1; }
  export LD_LIBRARY_PATH=$(dirname "$found")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
done

# The check ends its step, and says what it left out, before the bundle goes.
python3 "$root/scripts/gpu_check/main.py" --root "$root" --out "$out" --minutes "$minutes" --call "$call" &
check=$!
interrupted=1
trap 'interrupted=1; kill -TERM "$check" 2>/dev/null || true' INT TERM HUP
while [ -n "$interrupted" ]; do
  interrupted=
  status=0
  wait "$check" || status=$?
done
exit "$status"
