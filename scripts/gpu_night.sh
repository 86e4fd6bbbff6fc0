#!/usr/bin/env bash
# Nights on borrowed H200s, one part at a time, each within ten minutes on GPUs with 16 cores each. Those of 2026-11-21 under
# data/h200 are `night` (the one on two GPUs in an earlier order of the plan); `aa`, `more` and `ways` have not been run yet.
#   scripts/gpu_night.sh PART FOLDER      PART: night | tuned | more | aa | ways
# Needs torch with CUDA, timm, torchvision, transformers, click and rich; neither a database nor the rest of the project.
set -euo pipefail
part=$1 folder=$2
cd "$(dirname "$0")/.."
export PYTHONPATH=$PWD PYTHONUNBUFFERED=1 INDUCTOR_WATCH_NODE=${INDUCTOR_WATCH_NODE:-h200}
export PYTHONDONTWRITEBYTECODE=1
mkdir -p "$folder"

# Asked once for all runs of a part; see collector/toolchain.py.
if [[ $(python3 -m collector.toolchain) == *'"probe_needed": false'* ]]; then export TORCHINDUCTOR_VEC_ISA_OK=1; fi

plan=$(mktemp)
plan() { python3 scripts/h200_plan.py "$1" >"$plan"; }
night() { python3 -m jobs.cli nightly --no-store --plan "$plan" --out "$folder" --timeout 300 --costs data/h200 "$@"; }
workers=${WORKERS:-8} hours=${HOURS:-0.125}

case $part in
night) plan night && night --gpus all --workers "$workers" --max-hours "$hours" --label "the zoo, without GEMM tuning" ;;
tuned)
    # Tuning one cell after the other takes the device for minutes a cell: more than a borrowed machine has.
    plan tuned && night --gpus all --workers "$workers" --max-hours "$hours" --tune-together --label "tuned GEMMs, side by side"
    ;;
more) python3 -m jobs.cli resume --no-store --out "$folder" --max-hours "$hours" ;;
aa) plan aa && night --gpus all --workers "$workers" --max-hours "$hours" --label "A/A: the same code again" ;;
ways)
    # The same cells on one host, 16 cores a GPU: one process a cell in sequence on the second GPU, the pool on the first.
    plan ways
    taskset -c 16-31 bash -c "$(declare -f night); plan=$plan folder=$folder; night --start spawn --gpus 1 --workers 1 \
        --max-hours $hours --label 'a process a cell, in sequence'" >"$folder/sequence.log" 2>&1 &
    taskset -c 0-15 bash -c "$(declare -f night); plan=$plan folder=$folder; night --gpus 0 --workers $workers --label 'the pool'"
    wait
    ;;
*) echo "gpu_night.sh: no part '$part': night, tuned, more, aa or ways" >&2; exit 2 ;;
esac
