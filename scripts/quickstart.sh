#!/usr/bin/env bash
# From nothing to a trained language model: installs what is missing, builds, starts a controller and two workers on this
# machine, trains a small Llama on the King James Bible, and lets it write.
#
#   scripts/quickstart.sh            everything, anew in a fresh directory; the build is reused
#   scripts/quickstart.sh --short    the same path with a tiny model and a minute of training (part of the tests)
#   scripts/quickstart.sh --clean    removes what it made: its runs, its corpus and the build (packages stay)
set -euo pipefail
cd "$(dirname "$0")/.."

build=${TRAINYARD_BUILD:-build}
home=.trainyard/quickstart
corpus=$home/corpus.txt
recipe=recipes/quickstart.yaml
minutes=3
overrides=()
prompt="And the LORD said"

case "${1:-}" in
  "") ;;
  --short)
    minutes=1
    overrides=(--set steps=60 --set validation.every_steps=30 --set checkpoint.every_steps=30
               --set model.overrides.layers=2 --set model.overrides.hidden=128 --set model.overrides.ffn=384
               --set model.overrides.heads=4 --set model.overrides.kv_heads=2 --set batch.sequence=128)
    ;;
  --clean)
    # A build that scripts/build.sh made has this log. What else is in .trainyard/ is of a `trainyard up` of the user's own.
    removed=("$home/ (runs and corpus)")
    [ ! -e "$build/configure.log" ] || { rm -rf "$build"; removed+=("and $build/"); }
    rm -rf "$home"
    rmdir --ignore-fail-on-non-empty .trainyard 2>/dev/null || true
    echo "Removed ${removed[*]}. The Debian packages stay; scripts/install_deps.sh --list names them."
    exit 0
    ;;
  --help) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 0 ;;
  *) echo "quickstart: wanted --short, --clean, --help or nothing, found '$1'" >&2; exit 2 ;;
esac

say() { printf '%s\n' "$*"; }
missing=$(scripts/install_deps.sh --list | while read -r p; do
  dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || echo "$p"; done | wc -l)
say "Trainyard quickstart. This will:"
if [ "$missing" -gt 0 ]; then
  say "  - install $missing Debian packages: about 1 GB of disk, 2 minutes, as root or with sudo"
  say "    (without root: it prints the one apt-get line to give to an administrator, and stops)"
fi
if [ -x "$build/bin/trainyard" ]; then
  say "  - bring the build in $build/ up to date"
else
  say "  - build into $build/: about 400 MB of disk, 5 to 10 minutes on two cores, once"
fi
say "  - train for about $minutes minute(s) on two CPU ranks; the corpus (4.4 MB, from Debian's bible-kjv) stays in $corpus,"
say "    the run goes to a new folder beside it. Ctrl-C stops everything; --clean removes the corpus, all runs and the build."

scripts/install_deps.sh
say "Building ..."
scripts/build.sh trainyard trainyard-controller trainyard-worker trainyard-trainer
PATH="$(realpath "$build")/bin:$PATH"

mkdir -p "$home"
[ -s $corpus ] || { PATH="$PATH:/usr/games" bible -f gen1:1-rev22:21 >$corpus.tmp && mv $corpus.tmp $corpus; }
run=$home/$(date +%Y%m%d-%H%M%S)
mkdir "$run" 2>/dev/null || { run=$run-$$; mkdir "$run"; }

up_pid=
watch_pid=
stop() {
  trap - EXIT
  [ -z "$watch_pid" ] || kill -TERM "$watch_pid" 2>/dev/null || true
  [ -n "$up_pid" ] || return 0
  trap 'kill -TERM "$up_pid" 2>/dev/null || true' INT TERM HUP  # Once more: the service ends at once.
  kill -TERM "$up_pid" 2>/dev/null || true
  while kill -0 "$up_pid" 2>/dev/null; do wait "$up_pid" 2>/dev/null || true; done
}
trap stop EXIT
trap 'say "Stopping; the ranks write a checkpoint first (Ctrl-C again: at once)"; stop; exit 130' INT
trap 'stop; exit 143' TERM
trap 'stop; exit 129' HUP

: >"$run/up.log"
# A process group of its own (-m): a terminal's Ctrl-C reaches this script alone, which then asks the service to end.
set -m
trainyard up --workers 2 --devices-per-worker 1 --state "$run/state" --listen 127.0.0.1:0 --metrics-listen 127.0.0.1:0 \
  >"$run/up.log" 2>&1 &
up_pid=$!
set +m
ready=
for _ in $(seq 300); do
  ready=$(grep -m 1 '^ready ' "$run/up.log" || true)
  [ -n "$ready" ] && break
  kill -0 $up_pid 2>/dev/null || break
  sleep 0.2
done
if [ -z "$ready" ]; then
  say "quickstart: the service did not start; $run/up.log says:" >&2
  tail -n 20 "$run/up.log" >&2
  exit 1
fi
TRAINYARD_CONTROLLER=$(sed 's/.*controller=\([^ ]*\).*/\1/' <<<"$ready")
export TRAINYARD_CONTROLLER
metrics=$(sed 's/.*metrics=\([^ ]*\).*/\1/' <<<"$ready")

say "Serving at $TRAINYARD_CONTROLLER, metrics at $metrics. Training:"
job=$(trainyard submit $recipe --set data.text.path=$corpus --set checkpoint.directory="$run/checkpoints" "${overrides[@]}")
trainyard watch "$job" &  # In the background: a trap waits for a command in the foreground to end.
watch_pid=$!
wait "$watch_pid"
watch_pid=
curl -sf "$metrics" >"$run/metrics.prom"

say ""
trainyard steps "$job" --plot
say ""
checkpoint=$(trainyard checkpoint list "$run/checkpoints" -o jsonl | tail -n 1 | sed 's/.*"path": *"\([^"]*\)".*/\1/')
say "The model continues \"$prompt\":"
say ""
trainyard generate "$checkpoint" --prompt "$prompt" --tokens 300 --temperature 0.7 --seed 1
say ""
say ""
say "checkpoint  $checkpoint"
say "            $build/bin/trainyard generate $checkpoint --prompt \"In the beginning\""
say "metrics     $run/metrics.prom (scraped from $metrics)"
say "logs        $run/state/logs/ and $build/bin/trainyard logs, steps, events while the service runs:"
say "            $build/bin/trainyard up --workers 2 --state $run/state    serves this run again"
