#!/usr/bin/env bash
# An MLP: exported from PyTorch, compiled for two ranks, trained by dcrun, opened in PyTorch again.
# run.sh [FOLDER]: where to write; build/examples/mlp if not given. Needs scripts/setup.sh.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
out=${1:-$root/build/examples/mlp}
python=$root/build/venv/bin/python
export PYTHONPATH=$root/scripts:$here PYTHONWARNINGS=ignore::UserWarning  # one of PyTorch itself
[ -x "$root/build/bin/dcrun" ] || { echo "run.sh: build/bin/dcrun is missing; run scripts/setup.sh first" >&2; exit 69; }
rm -rf "$out"
mkdir -p "$out"

"$python" "$here/points.py" make "$out/points.safetensors"
"$python" "$here/export_mlp.py" "$out/mlp.pt2"
"$root/build/bin/dcc" compile "$out/mlp.pt2" --world 2 --zero 3 -o "$out/mlp.dcp"
"$root/build/bin/dcrun" -n 2 "$out/mlp.dcp" --weights "$out/mlp.pt2" --data "$out/points.safetensors" --steps 400 \
  --shuffle 0 --save "$out/saved/model.safetensors" | tail -n 3
"$python" "$here/points.py" score "$out/saved/model.safetensors" "$out/points.safetensors"
