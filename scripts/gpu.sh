#!/usr/bin/env bash
# All that a GPU must show, in less than nine minutes, on a machine with CUDA 13, Python 3.12 and PyTorch 2.11 (`python3`, or $PYTHON) and without a network:
# training next to the CPU, tests of kernels, a profile with its prediction next to the step, step times next to PyTorch. Writes report.json and report.html to $OUT, or to build/gpu-report.
# Needs build/gpu (scripts/gpu_bundle.sh). Arguments go to scripts/benchmark/gpu.py: `--stages A,B` runs some; `--double build/release/double` tries it without a GPU.
set -euo pipefail
cd "$(dirname "$0")/.."
[ -d build/gpu ] || { echo "gpu.sh: build/gpu is missing; make it with scripts/gpu_bundle.sh where the project is built" >&2; exit 66; }
exec "${PYTHON:-python3}" -u scripts/benchmark/gpu.py --bundle build/gpu --out "${OUT:-build/gpu-report}" "$@"
