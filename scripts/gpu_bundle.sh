#!/usr/bin/env bash
# Makes build/trainyard-gpu.tar.xz, the bundle for a machine with a GPU, and prints what to run there.
#
#   scripts/gpu_bundle.sh      TRAINYARD_BUILD=DIR: as in scripts/build.sh
set -euo pipefail
cd "$(dirname "$0")/.."
build=${TRAINYARD_BUILD:-build}
scripts/build.sh gpu_bundle
bundle=$build/trainyard-gpu.tar.xz
cat <<END
$bundle has $(stat -c %s "$bundle") bytes. Send it with this checkout to a machine with a GPU.
The first call there, at the top of the checkout; results come in \$OUT, or in gpu_check/:
timeout -k 5 410 scripts/gpu_check.sh $bundle
The second, after a mend; RESULTS is the first call's results.json, MODEL what the mend has changed:
timeout -k 5 200 scripts/gpu_check.sh --after RESULTS --changed MODEL $bundle
END
