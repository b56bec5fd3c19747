#!/usr/bin/env bash
# Installs what Trainyard builds and runs with, from Debian 12's own packages, and for GPUs the headers that
# install_cudnn_frontend.sh fetches. Does nothing if all of it is there.
#
#   scripts/install_deps.sh [--list|PACKAGE...]     --list: print the packages and change nothing; PACKAGE: these, too
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(
  g++ cmake ninja-build ccache mold git ca-certificates
  libgrpc++-dev protobuf-compiler protobuf-compiler-grpc libprotobuf-dev libabsl-dev libssl-dev
  libsqlite3-dev libgloo-dev libdnnl-dev libyaml-cpp-dev libcli11-dev nlohmann-json3-dev
  prometheus-cpp-dev libmicrohttpd-dev libgnutls28-dev libcurl4-openssl-dev zlib1g-dev
  libutf8proc-dev libsentencepiece-dev
  libgtest-dev libgmock-dev libbenchmark-dev
  python3 curl procps iproute2 openssl bible-kjv tzdata
)

if [ "${1:-}" = --list ]; then
  printf '%s\n' "${packages[@]}"
  exit 0
fi
packages+=("$@")

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
  exec scripts/install_cudnn_frontend.sh
fi

if ! command -v apt-get >/dev/null; then
  echo "install_deps: wanted Debian 12 (apt-get), found another system. Install what matches these: ${missing[*]}" >&2
  exit 1
fi
run=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "install_deps: missing packages, and neither root nor sudo to install them. Ask an administrator for:" >&2
    echo "  apt-get install --no-install-recommends ${missing[*]}" >&2
    echo "Everything after that runs without root." >&2
    exit 1
  fi
  run=(sudo)
fi

echo "Installing ${#missing[@]} Debian packages: ${missing[*]}"
log=$(mktemp)
# The prometheus package of the tests would start a server of its own; only its programs are wanted.
policy=/usr/sbin/policy-rc.d
made_policy=
if [ ! -e $policy ]; then
  printf '#!/bin/sh\nexit 101\n' | "${run[@]}" tee $policy >/dev/null
  "${run[@]}" chmod +x $policy
  made_policy=yes
fi
cleanup() { [ -z "$made_policy" ] || "${run[@]}" rm -f $policy; }
trap cleanup EXIT
if ! { "${run[@]}" apt-get update &&
       "${run[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
  tail -n 20 "$log" >&2
  echo "install_deps: apt-get failed; the whole log is $log" >&2
  exit 1
fi
rm -f "$log"
scripts/install_cudnn_frontend.sh
