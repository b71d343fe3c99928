#!/usr/bin/env bash
# The main job, start to end: a real Hugging Face model, exported, measured, compiled ahead of time, trained by real ranks,
# with PyTorch's own losses next to it. Sets everything up first; needs root on a fresh machine.
set -euo pipefail
cd "$(dirname "$0")/.."
python=build/venv/bin/python
out=build/demo
ranks=2
steps=20
lr=3e-4
step="set-up" started=0 times=""

# title WHAT WORDS...: begins the part WHAT of the demo; its time is in the last line.
title() {
  times+="$step $((SECONDS - started)) s, "
  step=$1 started=$SECONDS
  shift
  printf '\n== %s: %s\n' "$step" "$*"
}
trap 'code=$?; [ "$code" -eq 0 ] || echo "demo.sh: $step failed (exit code $code); the reason stands above" >&2' EXIT

scripts/setup.sh
mkdir -p "$out"

title export "small-llama (10.4 million parameters), one training step: forward, loss, backward"
$python scripts/export.py --preset small-llama -o "$out/model.pt2"
$python scripts/demo_reference.py data "$out/model.pt2" "$out/tokens.bin" --ranks "$ranks" --steps "$steps"
echo "{\"optimizer\": {\"kind\": \"adamw\", \"lr\": $lr}, \"clip_norm\": 1.0}" >"$out/train.json"

title profile "every kernel and collective of the step, on $ranks ranks"
build/bin/dcc profile "$out/model.pt2" -n "$ranks" -o "$out/prof.json"

title compile "sharded over $ranks ranks, scheduled by simulation"
build/bin/dcc compile "$out/model.pt2" --profile "$out/prof.json" --world "$ranks" \
  --config "$out/train.json" -o "$out/plan.dcp"

title train "$steps steps under mpirun, without Python"
rm -rf "$out/metrics.jsonl" "$out/trace.json" "$out/saved"
mpirun --allow-run-as-root --oversubscribe -n "$ranks" build/bin/dcrun "$out/plan.dcp" --weights "$out/model.pt2" \
  --data "$out/tokens.bin:uint16" --steps "$steps" --metrics "$out/metrics.jsonl" --trace "$out/trace.json" --save "$out/saved/model.safetensors"

title PyTorch "the same $steps steps on the same data, next to what dcrun measured"
build/bin/dcc inspect "$out/plan.dcp" --as=json >"$out/plan.json"
$python scripts/demo_reference.py compare "$out/model.pt2" "$out/tokens.bin" --ranks "$ranks" --steps "$steps" --lr "$lr" \
  --metrics "$out/metrics.jsonl" --plan-json "$out/plan.json" --trace "$out/trace.json"
printf '\nwhere the memory went: '
build/bin/dcc inspect "$out/plan.dcp" --as=memory

build/bin/dcc inspect "$out/plan.dcp" "$out/trace.json" --as=timeline -o "$out/timeline.html"

title done "all of it is in $out"
echo "the step over time, as predicted and as run: $out/timeline.html (open it in a browser)"
echo "every instruction of every rank over time: $out/trace.json (open it in ui.perfetto.dev)"
echo "trained parameters: $out/saved/model.safetensors; the plan as text: build/bin/dcc inspect $out/plan.dcp --as=text"
echo "the demo's own time: ${times%, }; $SECONDS s in all"
