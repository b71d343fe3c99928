#!/usr/bin/env bash
# Benchmark: dcrun next to PyTorch on small-llama, in one run. Needs scripts/setup.sh. Arguments go to scripts/benchmark/run.py.
set -euo pipefail
cd "$(dirname "$0")/.."
exec build/venv/bin/python scripts/benchmark/run.py "$@"
