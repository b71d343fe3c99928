#!/usr/bin/env bash
# One's own text, byte by byte: tokens from files, a small Llama trained on two ranks.
# run.sh [FOLDER]: where to write; build/examples/text if not given. Needs scripts/setup.sh.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
out=${1:-$root/build/examples/text}
python=$root/build/venv/bin/python
[ -x "$root/build/bin/dcrun" ] || { echo "run.sh: build/bin/dcrun is missing; run scripts/setup.sh first" >&2; exit 69; }
rm -rf "$out"
mkdir -p "$out"

steps=80
"$python" "$here/tokenise.py" "$out/text.bin" "$root"/*.md "$root"/*/README.md "$root"/*/*/README.md  # the text: this project's pages
"$python" "$root/scripts/export.py" --hf-config "$here/config.json" --batch 4 --seq 128 -o "$out/text.pt2"
"$root/build/bin/dcc" compile "$out/text.pt2" --world 2 --config "$here/train.json" -o "$out/text.dcp" >"$out/compile.txt"
head -n 1 "$out/compile.txt"
"$root/build/bin/dcrun" -n 2 "$out/text.dcp" --weights "$out/text.pt2" --data "$out/text.bin:uint16" --shuffle 0 --steps "$steps" \
  --metrics "$out/metrics.jsonl" --save "$out/saved/model.safetensors" | tail -n 2
"$python" -c "import json, sys
losses = [json.loads(line)['loss'] for line in open(sys.argv[1]) if 'loss' in line]
print(f'loss {losses[0]:.2f} at first (guessing among 257: 5.55), {losses[-1]:.2f} at last')
sys.exit(losses[-1] > 0.65 * losses[0])" "$out/metrics.jsonl"
