#!/usr/bin/env bash
# Nights on borrowed H200s, one part at a time, each within ten minutes on GPUs with 16 cores each; docs/pool.md names those
# whose bundles are under data/h200.
#   scripts/gpu_night.sh PART FOLDER      PART: night | tuned | tuned-training | trained | more | aa | ways | scaling |
#                                               proof | partitions
#   WORKERS=16 a GPU, HOURS=0.125 after which nothing is started, COSTS=data/h200 to learn from, GPUS=all
# Needs torch with CUDA, timm, torchvision, transformers, click and rich; neither a database nor the rest of the project.
set -euo pipefail
part=$1 folder=$2
cd "$(dirname "$0")/.."
export PYTHONPATH=$PWD PYTHONUNBUFFERED=1 INDUCTOR_WATCH_NODE=${INDUCTOR_WATCH_NODE:-h200}
export PYTHONDONTWRITEBYTECODE=1
mkdir -p "$folder"

# Asked once for all runs of a part; see collector/toolchain.py.
if [[ $(python3 -m collector.toolchain) == *'"probe_needed": false'* ]]; then export TORCHINDUCTOR_VEC_ISA_OK=1; fi

workers=${WORKERS:-16} hours=${HOURS:-0.125} costs=${COSTS:-data/h200} gpus=${GPUS:-all} each=16
# PLAN LABEL CORES OPTION...: a night of a plan of h200_plan.py on some of the host's cores.
night() {
    local plan
    plan=$(mktemp) && python3 scripts/h200_plan.py "$1" >"$plan"
    taskset -c "$3" python3 -m jobs.cli nightly --no-store --plan "$plan" --out "$folder" --timeout 300 --costs "$costs" \
        --label "$2" "${@:4}"
}
every=0-$(($(nproc) - 1))

case $part in
night) night night "the zoo, without GEMM tuning" "$every" --gpus "$gpus" --workers "$workers" --max-hours "$hours" ;;
tuned)
    # Tuning one cell after the other takes the device for minutes a cell: more than a borrowed machine has.
    night tuned "tuned GEMMs, side by side" "$every" --gpus "$gpus" --workers "$workers" --max-hours "$hours" --tune-together
    ;;
trained) night trained "training" "$every" --gpus "$gpus" --workers "$workers" --max-hours "$hours" ;;
tuned-training)
    # Few and long: each gets many cores.
    night tuned-training "tuned GEMMs, training" "$every" --gpus "$gpus" --workers 2 --max-hours "$hours" --tune-together
    ;;
proof | partitions)
    plan=$(mktemp) && python3 scripts/h200_plan.py "$part" >"$plan"
    words=(--times 8 --inject 0.02,0.03,0.05,0.1)
    if [[ $part == partitions ]]; then words=(--times 5); fi
    python3 scripts/repeat_cells.py "$plan" "$folder" "${words[@]}" --gpus "$gpus" --workers "$workers" --costs "$costs" \
        --max-s "${SECONDS_LEFT:-480}" --label "$part"
    ;;
more) python3 -m jobs.cli resume --no-store --out "$folder" --max-hours "$hours" ;;
aa) night aa "A/A: the same code again" "$every" --gpus "$gpus" --workers "$workers" --max-hours "$hours" ;;
ways)
    # The same cells on one host, 16 cores a GPU: one process a cell in sequence on all GPUs but the first, the pool there.
    last=$(($(nvidia-smi --list-gpus | wc -l) - 1))
    night ways "a process a cell, in sequence" "$each-$(((last + 1) * each - 1))" --start spawn --gpus "$(seq -s, 1 $last)" \
        --workers 1 --max-hours "$hours" >"$folder/sequence.log" 2>&1 &
    night ways "the pool" "0-$((each - 1))" --gpus 0 --workers "$workers" --max-hours "$hours"
    night others "the pool, other models" "0-$((each - 1))" --gpus 0 --workers "$workers" --max-hours "$hours"
    wait
    ;;
scaling)
    # Both halves of what `ways` gave the pool on one GPU: with twice the GPUs this should take half as long.
    for count in ${COUNTS:-2 4}; do
        night scaling "$count GPUs" "0-$((count * each - 1))" --gpus "$(seq -s, 0 $((count - 1)))" --workers "$workers" \
            --max-hours "$hours"
    done
    ;;
*) echo "gpu_night.sh: no part '$part': see the head of this file" >&2; exit 2 ;;
esac
