#!/usr/bin/env bash
# A model of one's own, in the way of nanoGPT: exported, compiled for two ranks, trained on text, scored in PyTorch.
# run.sh [FOLDER]: where to write; build/examples/own-model if not given. Needs scripts/setup.sh.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
out=${1:-$root/build/examples/own-model}
python=$root/build/venv/bin/python
export PYTHONPATH=$root/scripts:$here PYTHONWARNINGS=ignore::UserWarning  # one of PyTorch itself
[ -x "$root/build/bin/dcrun" ] || { echo "run.sh: build/bin/dcrun is missing; run scripts/setup.sh first" >&2; exit 69; }
rm -rf "$out"
mkdir -p "$out"

"$python" "$here/text.py" make "$out/text.bin"
"$python" "$here/gpt.py" "$out/gpt.pt2"
"$root/build/bin/dcc" compile "$out/gpt.pt2" --world 2 -o "$out/gpt.dcp"
"$root/build/bin/dcrun" -n 2 "$out/gpt.dcp" --weights "$out/gpt.pt2" --data "$out/text.bin:uint16" --steps 120 --shuffle 0 \
  --save "$out/saved/model.safetensors" | tail -n 3
"$python" "$here/text.py" score "$out/saved/model.safetensors" "$out/text.bin"
