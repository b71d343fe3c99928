#!/usr/bin/env bash
# The main job, start to end: a real Hugging Face model, exported, measured, compiled ahead of time, trained by real ranks,
# with PyTorch's own losses beside. Sets everything up first; needs root on a fresh machine.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh

python=build/venv/bin/python
out=build/demo
ranks=2
steps=20
mkdir -p "$out"
title() { printf '\n== %s\n' "$*"; }
mpi() { mpirun --allow-run-as-root --oversubscribe -n "$ranks" "$@"; }

title "export: small-llama, one training step (forward, loss, backward)"
[ -e "$out/model.pt2" ] || $python scripts/export.py --preset small-llama -o "$out/model.pt2"
cat >"$out/train.json" <<'JSON'
{"optimizer": {"kind": "adamw", "lr": 1e-3}, "clip_norm": 1.0}
JSON
$python scripts/demo_reference.py data "$out/model.pt2" "$out/tokens.bin" --ranks "$ranks" --steps "$steps"

title "profile: every kernel and collective, on $ranks ranks"
build/bin/dcc profile "$out/model.pt2" -n "$ranks" -o "$out/prof.json"

title "compile: ZeRO-3 for $ranks ranks"
build/bin/dcc compile "$out/model.pt2" --profile "$out/prof.json" --world "$ranks" --zero 3 \
  --config "$out/train.json" -o "$out/plan.dcp"

title "train: $steps steps under mpirun, without Python"
mpi build/bin/dcrun "$out/plan.dcp" --weights "$out/model.pt2" --data "$out/tokens.bin:uint16" --steps "$steps" \
  --metrics "$out/metrics.jsonl" --trace "$out/trace.json" --save "$out/saved"

title "PyTorch on the same data"
$python scripts/demo_reference.py compare "$out/model.pt2" "$out/tokens.bin" --ranks "$ranks" --steps "$steps" \
  --metrics "$out/metrics.jsonl" --plan-json <(build/bin/dcc inspect "$out/plan.dcp" --as=json)
echo "trace for ui.perfetto.dev: $out/trace.json; parameters: $out/saved/model.safetensors"
