#!/usr/bin/env bash
# Installs what only the tests need: clang-format, the programs that users have on the other side (podman, Slurm, Prometheus,
# kubectl and so on), from Debian, and readers and validators from PyPI in a Python environment of their own.
# Does nothing if all of it is there. scripts/test.sh calls it; the quickstart does not.
#
#   scripts/install_test_tools.sh [--python]     --python: prints that environment's interpreter, and installs nothing
set -euo pipefail
cd "$(dirname "$0")/.."

environment="${XDG_CACHE_HOME:-$HOME/.cache}/trainyard/test-python"
if [ "${1:-}" = --python ]; then
  echo "$environment/bin/python"
  exit 0
fi

packages=(clang-format prometheus strace python3-venv mmdebstrap podman catatonit buildah runc slurm-wlm munge prometheus-alertmanager systemd help2man man-db bash-completion)
# A kubectl of another origin stays, and Debian's package would not install beside it.
command -v kubectl >/dev/null || packages+=(kubernetes-client)
scripts/install_deps.sh "${packages[@]}"

# The environment is made anew, whole, when the list has changed: a half-made one has no copy of the list.
wanted=tests/requirements.txt
if ! cmp -s "$wanted" "$environment/requirements.txt"; then
  rm -rf "$environment"
  python3 -m venv "$environment"
  "$environment/bin/pip" install --quiet --disable-pip-version-check --requirement "$wanted"
  cp "$wanted" "$environment/requirements.txt"
fi
