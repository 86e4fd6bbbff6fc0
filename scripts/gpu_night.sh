#!/usr/bin/env bash
# Nights on borrowed H200s, one part at a time, each within ten minutes on GPUs with 16 cores each; docs/pool.md names those
# whose bundles are under data/h200.
#   scripts/gpu_night.sh PART FOLDER      PART: night | tuned | tuned-training | trained | more | aa | ways | scaling |
#                                               proof | plain | partitions | partitions-training | beside | rest |
#                                               remaining | tuned-rest | eight | cpu
#   WORKERS=16 a GPU, HOURS=0.125 after which nothing is started, COSTS=data/h200 to learn from, GPUS=all, CORES=0-31,
#   WITHOUT="BUNDLE..." whose cells a night leaves out,
#   TIMEOUT=300 a cell, TIMES=4, INJECT=0.02,0.03,0.05,0.1 (empty: no slow-downs, as in `proof` to fill TUNING), TUNING= a folder in which autotuning's choices are shared (collector/shared_tuning.py)
# Needs torch with CUDA, timm, torchvision, transformers, click and rich; neither a database nor the rest of the project.
set -euo pipefail
part=$1 folder=$2
cd "$(dirname "$0")/.."
export PYTHONPATH=$PWD PYTHONUNBUFFERED=1 INDUCTOR_WATCH_NODE=${INDUCTOR_WATCH_NODE:-h200}
export PYTHONDONTWRITEBYTECODE=1
mkdir -p "$folder"
if [[ ${TUNING:-} ]]; then export INDUCTOR_WATCH_TUNING=$TUNING; fi

# Asked once for all runs of a part; see collector/toolchain.py.
if [[ $(python3 -m collector.toolchain) == *'"probe_needed": false'* ]]; then export TORCHINDUCTOR_VEC_ISA_OK=1; fi

inject=${INJECT-0.02,0.03,0.05,0.1} workers=${WORKERS:-16} hours=${HOURS:-0.125} costs=${COSTS:-data/h200} gpus=${GPUS:-all} each=16
# PLAN LABEL CORES OPTION...: a night of a plan of h200_plan.py on some of the host's cores.
night() {
    local plan
    plan=$(mktemp) && python3 scripts/h200_plan.py "$1" --without ${WITHOUT:-} >"$plan"
    taskset -c "$3" python3 -m jobs.cli nightly --no-store --plan "$plan" --out "$folder" --timeout "${TIMEOUT:-300}" --costs "$costs" \
        --label "$2" "${@:4}"
}
# PLAN LABEL OPTION...: the cells of a plan many times over.
repeat() {
    local plan
    plan=$(mktemp) && python3 scripts/h200_plan.py "$1" >"$plan"
    taskset -c "$every" python3 scripts/repeat_cells.py "$plan" "$folder" --label "$2" --timeout "${TIMEOUT:-300}" \
        --workers "$workers" --costs "$costs" --max-s "${SECONDS_LEFT:-480}" "${@:3}"
}
every=${CORES:-0-$(($(nproc) - 1))}

case $part in
night) night night "the zoo, without GEMM tuning" "$every" --gpus "$gpus" --workers "$workers" --max-hours "$hours" ;;
tuned)
    # Tuning one cell after the other takes the device for minutes a cell: more than a borrowed machine has.
    night tuned "tuned GEMMs, side by side" "$every" --gpus "$gpus" --workers "$workers" --max-hours "$hours" --tune-together
    ;;
remaining) night remaining "the rest of the zoo, and of its training" "$every" --gpus "$gpus" --workers "$workers" --max-hours "$hours" ;;
tuned-rest)
    night tuned-rest "tuned GEMMs, the rest of the zoo" "$every" --gpus "$gpus" --workers "$workers" --max-hours "$hours" --tune-together
    ;;
eight)
    # All that is left, on eight GPUs and 128 cores: six of them tune. The CPU's zoo wants statuses and no figures.
    CORES=112-127 WORKERS=16 "$0" cpu "$folder" >"$folder/cpu.log" 2>&1 &
    CORES=90-111 GPUS=6,7 WORKERS=11 "$0" remaining "$folder" >"$folder/remaining.log" 2>&1 &
    CORES=0-89 WORKERS=15 GPUS=0,1,2,3,4,5 "$0" tuned-rest "$folder"
    wait
    ;;
rest) night rest "the rest of the zoo" "$every" --gpus "$gpus" --workers "$workers" --max-hours "$hours" ;;
cpu) night cpu "the zoo on the CPU" "$every" --device cpu --workers "$workers" --max-hours "$hours" ;;
trained) night trained "training" "$every" --gpus "$gpus" --workers "$workers" --max-hours "$hours" ;;
tuned-training)
    # Few and long: each gets many cores.
    night tuned-training "tuned GEMMs, training" "$every" --gpus "$gpus" --workers "${WORKERS:-2}" \
        --max-hours "$hours" --tune-together
    ;;
proof) repeat proof "proof" --times "${TIMES:-4}" ${inject:+--inject "$inject"} --gpus "$gpus" ;;
plain)
    # The same cells without slow-downs, on two GPUs and on one: as many cells a GPU, so that twice as many should take as long.
    for count in ${COUNTS:-2 1}; do
        last=$((count - 1)) every=0-$((count * each - 1))
        repeat proof "plain, $count GPUs" --times $((count * ${TIMES:-2})) --gpus "$(seq -s, 0 $last)"
    done
    ;;
partitions) repeat partitions "partitions" --times "${TIMES:-5}" --gpus "$gpus" ;;
partitions-training) repeat partitions-training "partitions, training" --times "${TIMES:-5}" --gpus "$gpus" ;;
beside)
    # Tuned training takes few, long cells: beside it another GPU has time for much else.
    CORES=14-31 GPUS=1 WORKERS=6 TIMEOUT=520 "$0" tuned-training "$folder" >"$folder/tuned-training.log" 2>&1 &
    CORES=0-13 GPUS=0 WORKERS=14 "$0" partitions "$folder" || true
    CORES=0-13 GPUS=0 WORKERS=14 HOURS=${REST:-0.02} "$0" trained "$folder" || true
    wait
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
