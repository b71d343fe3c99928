#!/usr/bin/env bash
# job.sbatch under a loop that does what Slurm does: a time limit twice, a lost node once, each time the job starts again; in the end the bits of a run
# that nothing disturbed. Slurm is not needed: srun and scontrol are two small scripts here.
# run.sh [FOLDER]: where to write; build/examples/requeue if not given. Needs scripts/setup.sh.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
out=${1:-$root/build/examples/requeue}
python=$root/build/venv/bin/python
[ -x "$root/build/bin/dcrun" ] || { echo "run.sh: build/bin/dcrun is missing; run scripts/setup.sh first" >&2; exit 69; }
rm -rf "$out"
mkdir -p "$out/bin"
export PATH=$out/bin:$root/build/bin:$PATH STEPS=2400

"$python" "$root/scripts/export.py" --preset mlp --no-check -o "$out/mlp.pt2"
dcc compile "$out/mlp.pt2" --world 2 --zero 3 -o "$out/mlp.dcp"
dcrun -n 2 "$out/mlp.dcp" --weights "$out/mlp.pt2" --data synthetic:1 --steps "$STEPS" --save "$out/undisturbed" --metrics "$out/undisturbed.jsonl" | tail -n 1

# The tasks of a step on one host: SIGTERM is passed on once, the largest exit code comes back.
cat >"$out/bin/srun" <<'END'
#!/usr/bin/env bash
tasks=()
for ((rank = 0; rank < SLURM_NTASKS; rank++)); do
  SLURM_PROCID=$rank SLURM_LOCALID=$rank SLURM_STEP_NUM_TASKS=$SLURM_NTASKS SLURM_STEP_NUM_NODES=1 SLURM_STEP_ID=$SLURM_RESTART_COUNT "$@" &
  tasks+=($!)
done
trap 'kill -TERM "${tasks[@]}"' TERM
most=0
for task in "${tasks[@]}"; do
  code=0
  wait "$task" || code=$?
  while kill -0 "$task" 2>/dev/null; do code=0; wait "$task" || code=$?; done
  [ "$code" -le "$most" ] || most=$code
done
exit "$most"
END
cat >"$out/bin/scontrol" <<'END'
#!/usr/bin/env bash
case $1 in
requeue) touch "$REQUEUED" ;;
show) echo 127.0.0.1 ;;
esac
END
chmod +x "$out/bin/srun" "$out/bin/scontrol"

export SLURM_JOB_ID=77 SLURM_NTASKS=2 SLURM_NNODES=1 SLURM_JOB_NODELIST=here REQUEUED=$out/requeued
export DCRUN=$root/build/bin/dcrun PLAN=$out/mlp.dcp WEIGHTS=$out/mlp.pt2 RUN=$out/run
newest() { find "$RUN" -maxdepth 1 -name 'step-*' 2>/dev/null | sort | tail -n 1; }
starts=0 before=
for event in "time limit" "lost node" "time limit" none; do
  rm -f "$REQUEUED"
  SLURM_RESTART_COUNT=$starts setsid bash "$here/job.sbatch" >>"$out/job.txt" 2>&1 &
  job=$!
  starts=$((starts + 1))
  if [ "$event" != none ]; then
    while [ "$(newest)" = "$before" ] && kill -0 "$job" 2>/dev/null; do sleep 0.02; done
    case $event in
    "time limit") kill -USR1 "$job" ;;
    "lost node") kill -KILL -- "-$job" ;;
    esac
  fi
  code=0
  wait "$job" || code=$?
  before=$(newest)
  echo "start $starts: $event, exit $code, newest checkpoint $(basename "$before")$([ ! -e "$REQUEUED" ] || echo ', requeued')"
  case $event:$code in
  "time limit:75") [ -e "$REQUEUED" ] ;;
  "lost node:137" | none:0) [ ! -e "$REQUEUED" ] ;;
  *) tail -n 20 "$out/job.txt"; exit 1 ;;
  esac
done

for file in model rank-0-of-2 rank-1-of-2; do
  cmp "$out/undisturbed/step-0000$STEPS/$file.safetensors" "$RUN/step-0000$STEPS/$file.safetensors"
done
"$python" "$here/../restart/same_losses.py" "$out/undisturbed.jsonl" "$RUN.jsonl"
echo "started $starts times: parameters, moments and every loss are equal to the bit"
