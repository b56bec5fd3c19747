#!/usr/bin/env bash
# Takes the pictures of the page that README.md and docs/page.md show: starts a service on this machine, trains for a
# minute, and looks at the page with headless Chromium of Debian, which is installed where it is missing.
#
#   scripts/screenshots.sh [DIRECTORY]     into docs/images/, or DIRECTORY
set -euo pipefail
cd "$(dirname "$0")/.."
case "${1:-}" in -*) sed -n '2,5s/^# \{0,1\}//p' "$0"; exit 0 ;; esac

images=$(realpath -m "${1:-docs/images}")
build=$(realpath -m "${TRAINYARD_BUILD:-build}")
scripts/install_deps.sh chromium chromium-driver fonts-dejavu-core
scripts/build.sh trainyard trainyard-controller trainyard-worker trainyard-trainer
PATH="$build/bin:$PATH"
mkdir -p "$images"

run=$(mktemp -d)
up_pid=
stop() {
  if [ -n "$up_pid" ]; then
    kill -TERM "$up_pid" 2>/dev/null || true
    wait "$up_pid" || true
  fi
  rm -rf "$run"
}
trap stop EXIT

(cd "$run" && exec trainyard up --workers 2 --devices-per-worker 2 --state state --listen 127.0.0.1:0 --metrics-listen 127.0.0.1:0) \
  >"$run/ready" 2>"$run/up.log" &
up_pid=$!
until grep -q '^ready ' "$run/ready"; do
  kill -0 "$up_pid" 2>/dev/null || { cat "$run/up.log" >&2; exit 1; }
  sleep 0.1
done
TRAINYARD_CONTROLLER=$(sed 's/.*controller=\([^ ]*\).*/\1/' "$run/ready")
export TRAINYARD_CONTROLLER
page=$(sed 's|.*metrics=\([^ ]*\)/metrics.*|\1|' "$run/ready")

submit() {  # NAME SETTING...: prints the job's id.
  local name=$1
  shift
  trainyard submit recipes/tiny.yaml --set name="$name" --set checkpoint.directory="$run/runs/$name" --set validation='{every_steps: 25, batches: 1}' \
    --set checkpoint.every_steps=100 "${@/#/--set=}"
}
watched() { trainyard watch "$1" --quiet >/dev/null || true; }
watched "$(submit tiny-warmup steps=60)"
watched "$(submit tiny-lr-1e-1 steps=80 optimizer.adamw.learning_rate=1e-1)"
cancelled=$(submit tiny-wide steps=100000)
trainyard steps "$cancelled" --follow -o jsonl 2>/dev/null | head -n 60 >/dev/null || true
trainyard cancel "$cancelled" >/dev/null
watched "$cancelled"
running=$(submit tiny-tensor-2 steps=1000 devices=2 parallelism.tensor=2)
submit tiny-queued devices=4 parallelism.tensor=2 steps=500 >/dev/null
# Two thirds of the way, or whatever it has come to in two minutes.
timeout 120 trainyard steps "$running" --follow -o jsonl 2>/dev/null | head -n 640 >/dev/null || true

token=$(head -n 1 "$run/state/controller/token")
python3 scripts/screenshots/browse.py --page "$page" --token "$token" --images "$images" --job "$running"
ls -l "$images"/page-*.png
