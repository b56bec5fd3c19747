#!/usr/bin/env bash
# Builds the wheel of the Python client, without the network, and prints its path.
#
#   clients/python/build.sh DIRECTORY     DIRECTORY: where the wheel goes
#
# PYTHON names an interpreter that has pip, setuptools (61 or newer) and wheel; without it, python3
# is used. protoc and grpc_python_plugin are Debian's (scripts/install_deps.sh installs them).
set -euo pipefail

if [ $# -ne 1 ]; then
  sed -n '2,7s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
mkdir -p "$1"
destination=$(cd "$1" && pwd)
cd "$(dirname "$0")/../.."

# A build writes beside its sources, so a copy of them is built.
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
mkdir -p "$copy/clients" "$copy/wheel"
cp CMakeLists.txt LICENSE "$copy"
cp -R proto "$copy"
cp -R clients/python "$copy/clients"
if ! "${PYTHON:-python3}" -m pip --disable-pip-version-check wheel --quiet --no-index --no-deps \
    --no-build-isolation --wheel-dir "$copy/wheel" "$copy/clients/python" >"$copy/log" 2>&1; then
  cat "$copy/log" >&2
  exit 1
fi
cp "$copy"/wheel/*.whl "$destination"
echo "$destination/$(basename "$copy"/wheel/*.whl)"
