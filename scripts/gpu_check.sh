#!/usr/bin/env bash
# Everything that only a GPU can show, on a machine that has one and perhaps nothing else, in three calls, most valuable
# first. Writes results.json, anew after every step, and check.log.
#
#   scripts/gpu_check.sh [--call N] [--minutes N] [--out DIR] [BUNDLE.tar.gz]
#
# Without options: the first call, 9 minutes, ./gpu_check/call-1, this bundle. scripts/gpu_check/calls.py says what each call runs.
#
# NVIDIA's libraries (cuBLAS, cuDNN, NCCL, NVRTC) are found in CUDA's own directories or in Python's wheels.
set -euo pipefail

call=1
minutes=9
out=
bundle=
while [ $# -gt 0 ]; do
  case "$1" in
    --call) call=$2; shift 2 ;;
    --minutes) minutes=$2; shift 2 ;;
    --out) out=$2; shift 2 ;;
    -*) echo "gpu_check: unknown option $1" >&2; exit 2 ;;
    *) bundle=$1; shift ;;
  esac
done
out=${out:-$PWD/gpu_check/call-$call}
mkdir -p "$out"
out=$(cd "$out" && pwd)

root=$(cd "$(dirname "$0")/.." && pwd)
if [ -n "$bundle" ]; then
  root=$(mktemp -d)
  trap 'rm -rf "$root"' EXIT
  tar -xzf "$bundle" -C "$root" --strip-components=1
fi
[ -x "$root/bin/cuda_kernels_test" ] || { echo "gpu_check: no bin/cuda_kernels_test in $root; wanted an unpacked bundle, or BUNDLE.tar.gz" >&2; exit 2; }

# The directory of each library that is not found without being told.
for library in libcublasLt.so.13 libcudnn.so.9 libnccl.so.2 libnvrtc.so.13; do
  case "$(ldconfig -p 2>/dev/null)" in *"$library"*) continue ;; esac
  found=$(find /usr/local/cuda*/ "$(python3 -c 'import site; print(site.getsitepackages()[0])' 2>/dev/null || echo /nowhere)/nvidia" \
            -name "$library" -print -quit 2>/dev/null || true)
  [ -n "$found" ] || { echo "gpu_check: $library not found: not in ldconfig, /usr/local/cuda*, or Python's nvidia wheels" >&2; exit 1; }
  export LD_LIBRARY_PATH=$(dirname "$found")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
done

python3 "$root/scripts/gpu_check/main.py" --root "$root" --out "$out" --minutes "$minutes" --call "$call"
