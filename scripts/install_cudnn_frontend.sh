#!/usr/bin/env bash
# Fetches the headers of NVIDIA's cuDNN frontend from PyPI, where there is a CUDA toolkit: bf16 attention on GPUs is
# compiled with them. Without them the build is complete, and that attention slow. Does nothing if they are there.
set -euo pipefail
version=1.32.0
sha256=c6006556017a4d1c914c52a556c71b1267f2d6a0500f742e7b4edef539878df0
to="${XDG_CACHE_HOME:-$HOME/.cache}/trainyard/cudnn-frontend/$version"  # Where cmake/Dependencies.cmake looks.

[ -f "$to/include/cudnn_frontend.h" ] && exit 0
command -v nvcc >/dev/null || [ -x "${CUDAToolkit_ROOT:-/usr/local/cuda}/bin/nvcc" ] || exit 0
if ! python3 -m pip --version >/dev/null 2>&1; then
  echo "install_deps: no pip, so no headers of the cuDNN frontend $version: attention will not use cuDNN" >&2
  exit 0
fi
files=$(mktemp -d)
trap 'rm -rf "$files"' EXIT
# The one file whose sum is above, for whatever Python this is; its headers are the same in all of them.
if ! python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
       --python-version 3.11 --implementation cp --abi cp311 --platform manylinux_2_27_x86_64 \
       --dest "$files" "nvidia-cudnn-frontend==$version"; then
  echo "install_deps: PyPI has not given nvidia-cudnn-frontend $version: attention will not use cuDNN" >&2
  exit 0
fi
wheel=$(echo "$files"/*.whl)
echo "$sha256  $wheel" | sha256sum --check --quiet
python3 -m zipfile -e "$wheel" "$files/wheel"
mkdir -p "$to"
rm -rf "$to/include"
mv "$files/wheel/include" "$to/"
