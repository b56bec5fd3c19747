#!/usr/bin/env bash
# Proves that this tree and the last release work together: every mixture of controller, worker and command line, upgrades
# under a job, and ways back (tests/upgrade). Builds this tree into build/, and the release into build-upgrade/COMMIT/.
#
#   scripts/upgrade.sh [COMMIT] [--only WORD]     COMMIT: another release than the last one
#   scripts/upgrade.sh --record                   after a release: writes anew what later releases have to understand
#
# Wants root or unprivileged user namespaces, as tests/chaos does, and a clone that holds the release's commit.
set -euo pipefail
cd "$(dirname "$0")/.."

# The last release. Whoever makes a release writes its commit here, in a commit of its own that follows the release, runs
# this script with --record, and commits what that changes: proto/last_release.txt and tests/upgrade/last_release/.
last_release=d3b4dd7

release=$last_release
record=
case "${1:-}" in
  --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' scripts/upgrade.sh; exit 0 ;;
  --record) record=yes ;;
  "" | --only) ;;
  -*) echo "upgrade: wanted a commit, --only, --record or --help, found '$1'" >&2; exit 2 ;;
  *) release=$1; shift ;;
esac
commit=$(git rev-parse --verify --quiet "$release^{commit}") ||
  { echo "upgrade: wanted the commit $release in this clone; 'git fetch --unshallow' brings old commits" >&2; exit 1; }
programs=(trainyard trainyard-controller trainyard-worker trainyard-trainer)

# A clone rather than an archive, so that the programs know their revision.
old=build-upgrade/$commit
if [ ! -e "$old/.git" ]; then
  rm -rf "$old" "$old.part"
  git clone --quiet --shared --no-checkout . "$old.part"
  git -C "$old.part" checkout --quiet --detach "$commit"
  mv "$old.part" "$old"
fi
# Both trees share what the compiler cache knows: its paths are relative to each tree.
export CCACHE_BASEDIR=$PWD/$old
[ -f "$old/build/build.ninja" ] || cmake -S "$old" -B "$old/build" -G Ninja -DTRAINYARD_CUDA=off >"$old/configure.log"
"$old/scripts/build.sh" "${programs[@]}"

if [ -n "$record" ]; then
  python3 tests/proto/last_release.py "$old/proto" --describe >"$old/last_release.txt"
  mv "$old/last_release.txt" proto/last_release.txt
  exec python3 tests/upgrade/record.py --release "$old" --into tests/upgrade/last_release
fi
CCACHE_BASEDIR=$PWD scripts/build.sh "${programs[@]}"
exec python3 tests/upgrade/upgrade.py --old "$old" --new . "$@"
