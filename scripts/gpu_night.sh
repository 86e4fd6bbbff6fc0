#!/usr/bin/env bash
# The H200 nights whose bundles lie under data/h200: one part at a time, each within ten minutes on one GPU and 16 cores.
#   scripts/gpu_night.sh PART FOLDER      PART: cheap | aa | tuned | rest
# Needs torch with CUDA, timm, torchvision, transformers, click and rich; neither a database nor the rest of the project.
set -euo pipefail
part=$1 folder=$2
cd "$(dirname "$0")/.."
export PYTHONPATH=$PWD PYTHONUNBUFFERED=1 INDUCTOR_WATCH_NODE=${INDUCTOR_WATCH_NODE:-h200}
export PYTHONDONTWRITEBYTECODE=1

# Asked once for all runs of a part; see collector/toolchain.py.
if [[ $(python3 -m collector.toolchain) == *'"probe_needed": false'* ]]; then export TORCHINDUCTOR_VEC_ISA_OK=1; fi

models=()
for name in BertForMaskedLM DistillGPT2 T5Small mobilenetv2_100 deit_tiny_patch16_224.fb_in1k torchvision/resnet18 \
    torchvision/squeezenet1_1 yolov3 speech_transformer; do
    models+=(--model "$name")
done

night() { python3 -m jobs.cli nightly --no-store --out "$folder" --workers 5 --timeout 300 "$@"; }
configs() { for name in "$@"; do printf -- '--config\n%s\n' "$name"; done; }

case $part in
cheap) night "${models[@]}" $(configs triton cudagraphs freezing aten cutlass) --label "templates without GEMM tuning" --max-hours 0.13 ;;
aa) night "${models[@]}" $(configs triton cudagraphs) --label "A/A: the same code again" --max-hours 0.08 ;;
tuned) night "${models[@]}" $(configs cpp_wrapper max_autotune tma) --label "cpp_wrapper and tuned GEMMs" --max-hours 0.145 ;;
rest) night --plan scripts/plans/h200_rest.json --tune-together --label "graph_partition, training, tuned GEMMs side by side" --max-hours 0.132 ;;
*) echo "gpu_night.sh: no part '$part': cheap, aa, tuned or rest" >&2; exit 2 ;;
esac
