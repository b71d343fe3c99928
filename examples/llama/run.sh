#!/usr/bin/env bash
# A tiny Llama from a Hugging Face config, trained sharded on two ranks that mpirun starts.
# run.sh [FOLDER]: where to write; build/examples/llama if not given. Needs scripts/setup.sh.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
out=${1:-$root/build/examples/llama}
python=$root/build/venv/bin/python
[ -x "$root/build/bin/dcrun" ] || { echo "run.sh: build/bin/dcrun is missing; run scripts/setup.sh first" >&2; exit 69; }
rm -rf "$out"
mkdir -p "$out"

steps=100
"$python" "$here/tokens.py" "$out/tokens.bin" $((steps * 2 * 4 * 64))  # ranks x batch x sequence
"$python" "$root/scripts/export.py" --hf-config "$here/config.json" --batch 4 --seq 64 -o "$out/llama.pt2"
"$root/build/bin/dcc" compile "$out/llama.pt2" --world 2 --config "$here/train.json" -o "$out/llama.dcp" >"$out/compile.txt"
"$root/build/bin/dcc" inspect "$out/llama.dcp"
mpirun --allow-run-as-root --oversubscribe -n 2 "$root/build/bin/dcrun" "$out/llama.dcp" --weights "$out/llama.pt2" \
  --data "$out/tokens.bin:uint16" --steps "$steps" --metrics "$out/metrics.jsonl" --save "$out/saved/model.safetensors" >"$out/train.txt"
"$python" "$here/progress.py" "$out/metrics.jsonl"
