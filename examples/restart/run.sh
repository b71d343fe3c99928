#!/usr/bin/env bash
# Ranks that die under torchrun: it starts the job again, which goes on from the newest checkpoint and ends with the bits of a run that nothing disturbed.
# run.sh [FOLDER]: where to write; build/examples/restart if not given. Needs scripts/setup.sh.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
out=${1:-$root/build/examples/restart}
python=$root/build/venv/bin/python
dcrun=$root/build/bin/dcrun
export OMP_NUM_THREADS=1
[ -x "$dcrun" ] || { echo "run.sh: build/bin/dcrun is missing; run scripts/setup.sh first" >&2; exit 69; }
rm -rf "$out"
mkdir -p "$out"

"$python" "$root/scripts/export.py" --preset mlp --no-check -o "$out/mlp.pt2"
"$root/build/bin/dcc" compile "$out/mlp.pt2" --world 2 --zero 3 -o "$out/mlp.dcp"
# The same arguments for the first start and for every other.
train=("$out/mlp.dcp" --weights "$out/mlp.pt2" --data synthetic:1 --steps 6000 --save-every 200 --keep 2 --resume latest)

"$dcrun" -n 2 "${train[@]}" --save "$out/undisturbed" --metrics "$out/undisturbed.jsonl" | tail -n 1

newest() { find "$out/disturbed" -maxdepth 1 -name 'step-*' 2>/dev/null | sort | tail -n 1; }
"$python" -m torch.distributed.run --no-python --standalone --nproc-per-node 2 --max-restarts 3 \
  "$dcrun" "${train[@]}" --save "$out/disturbed" --metrics "$out/disturbed.jsonl" >"$out/disturbed.txt" 2>&1 &
job=$!
killed=0 before=
while kill -0 "$job" 2>/dev/null && [ "$killed" -lt 3 ]; do
  rank=$(pgrep -P "$job" -x dcrun | sed -n "$((killed % 2 + 1))p" || true)
  if [ -n "$rank" ] && [ "$(newest)" != "$before" ]; then
    before=$(newest)
    echo "killing a rank; the newest checkpoint is $(basename "$before")"
    kill -KILL "$rank"
    killed=$((killed + 1))
  fi
  sleep 0.1
done
wait "$job" || { tail -n 20 "$out/disturbed.txt"; exit 1; }
[ "$killed" -gt 0 ] || { echo "run.sh: the job ended before a rank could be killed" >&2; exit 1; }

for file in model rank-0-of-2 rank-1-of-2; do
  cmp "$out/undisturbed/step-00006000/$file.safetensors" "$out/disturbed/step-00006000/$file.safetensors"
done
"$python" "$here/same_losses.py" "$out/undisturbed.jsonl" "$out/disturbed.jsonl"
echo "killed $killed times: parameters, moments and every loss are equal to the bit"
