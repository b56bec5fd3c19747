#!/usr/bin/env bash
# Proves that this tree and the last release work together: every mixture of controller, worker and command line, upgrades
# under a job, and ways back (tests/upgrade). Builds this tree into build/, and the release into build-upgrade/COMMIT/.
#
#   scripts/upgrade.sh [COMMIT] [--only WORD]     COMMIT: another release than the last one
#
# Wants root or unprivileged user namespaces, as tests/chaos does, and a clone that holds the release's commit.
set -euo pipefail
cd "$(dirname "$0")/.."

# The last release. Whoever makes a release writes its commit here, in the commit that follows it, together with what
# 'scripts/last_release.py --write' makes anew.
last_release=d3b4dd7

release=$last_release
case "${1:-}" in
  --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' scripts/upgrade.sh; exit 0 ;;
  "" | --only) ;;
  *) release=$1; shift ;;
esac
commit=$(git rev-parse --verify --quiet "$release^{commit}") ||
  { echo "upgrade: wanted the commit $release in this clone; 'git fetch --unshallow' brings old commits" >&2; exit 1; }
programs=(trainyard trainyard-controller trainyard-worker trainyard-trainer)

# A clone rather than an archive, so that the programs know their revision.
old=build-upgrade/$commit
if [ ! -e "$old/.git" ]; then
  rm -rf "$old"
  git clone --quiet --shared --no-checkout . "$old.part"
  git -C "$old.part" checkout --quiet --detach "$commit"
  mv "$old.part" "$old"
fi
scripts/build.sh "${programs[@]}"
[ -f "$old/build/build.ninja" ] || CCACHE_BASEDIR="$PWD/$old" cmake -S "$old" -B "$old/build" -G Ninja -DTRAINYARD_CUDA=off >"$old/configure.log"
CCACHE_BASEDIR="$PWD/$old" "$old/scripts/build.sh" "${programs[@]}"
exec python3 tests/upgrade/upgrade.py --old "$old" --new . "$@"
