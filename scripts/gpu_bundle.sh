#!/usr/bin/env bash
# What scripts/gpu.sh needs on a machine with a GPU and no network, as build/gpu (at most 64 MiB with the checkout): dcc, dcrun and tests of build/release without their
# debugging information, the libraries that they need beyond the C library, samples of PyTorch, plans of models with the numbers that the CPU gives; all of it
# compressed. Needs scripts/setup.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
build=build/release out=build/gpu python=build/venv/bin/python
tests=(dcr_cuda_device_test dcr_cuda_exec_test dcr_cuda_kernel_test cuda_samples_test dcr_comm_ipc_test)
cmake --build "$build" --target programs "${tests[@]}" >/dev/null
rm -rf "$out"
mkdir -p "$out"/{bin,lib,tests,models}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

for program in dcc dcrun; do strip -o "$out/bin/$program" "$build/bin/$program"; done
for test in "${tests[@]}"; do strip -o "$out/tests/$test" "$build/bin/$test"; done
# The C library stays the machine's.
for program in "$out"/bin/* "$out"/tests/*; do ldd "$program" | awk '$3 ~ /^\// {print $3}'; done |
  sort -u | { grep -Ev '/(libc|libm|libdl|libpthread|librt|ld-linux[^/]*)\.so' || true; } | while read -r library; do cp -L "$library" "$out/lib/"; done

# Samples of operators that GPUs have kernels of.
LD_LIBRARY_PATH=$build/double "$out/tests/cuda_samples_test" --gtest_list_tests | sed -n 's/.*GetParam() = "\(.*\)"$/\1/p' >"$scratch/operators"
for samples in aten native; do
  awk 'NR == FNR {wanted[$1] = 1; next} $1 == "case" {keep = ($3 in wanted)} keep' "$scratch/operators" "$build/tests/runtime/kernel/${samples}_samples.txt" \
    >"$out/tests/${samples}_samples.txt"
done

# model NAME WORLD ZERO OPTION...: its plan, and an archive in the scratch folder. Weights are drawn where it runs.
model() {
  local name=$1 world=$2 zero=$3
  shift 3
  "$python" scripts/export.py "$@" --headless -o "$scratch/$name.pt2" 2>"$scratch/said" || { cat "$scratch/said" >&2; return 1; }
  "$build/bin/dcc" compile "$scratch/$name.pt2" --world "$world" --zero "$zero" --no-cache -o "$out/models/$name.dcp" | head -n 1
}
# compared TOLERANCE IS_TINY NAME WORLD ...: also trains it on the CPU. The tolerance is relative, of losses and norms.
compared() {
  local tolerance=$1 is_tiny=$2 name=$3 world=$4
  shift 2
  model "$@"
  "$build/bin/dcrun" -n "$world" "$out/models/$name.dcp" --weights init:1 --data synthetic:1 --steps 4 --device cpu --metrics "$scratch/$name.jsonl" >/dev/null
  "$python" - "$name" "$world" "$tolerance" "$is_tiny" "$scratch/$name.jsonl" >>"$scratch/models.jsonl" <<'END'
import json, sys

name, world, tolerance, is_tiny, path = sys.argv[1:]
rows = [row for row in map(json.loads, open(path)) if "loss" in row]
expected = [{"loss": row["loss"], "grad_norm": row["grad_norm"]} for row in rows]
print(json.dumps({"name": name, "world": int(world), "tolerance": float(tolerance), "is_tiny": is_tiny == "tiny", "expected": expected}))
END
}
for preset in tiny-llama tiny-gpt2 tiny-bert; do compared 2e-5 tiny "$preset" 1 0 --preset "$preset" --dtype float32; done
compared 5e-3 tiny tiny-llama-bf16 1 0 --preset tiny-llama --dtype bfloat16
compared 5e-3 tiny tiny-llama-autocast 1 0 --preset tiny-llama --dtype autocast-bfloat16
compared 5e-3 tiny tiny-llama-cuda-flash 1 0 --preset tiny-llama --dtype bfloat16 --attention cuda-flash
compared 2e-5 tiny tiny-llama-2-ranks 2 3 --preset tiny-llama --dtype float32
compared 2e-5 tiny tiny-mixtral 1 0 --preset tiny-mixtral --dtype float32
for preset in mlp tiny-llama-tied; do compared 2e-5 tiny "$preset" 1 0 --preset "$preset" --dtype float32; done
for preset in small-transformer small-rnnlm small-reformer; do compared 1e-4 small "$preset" 1 0 --preset "$preset" --dtype float32; done
# Through batch norms each step multiplies what roundings left: 2e-3 of a loss at step 3 on the double.
compared 5e-2 small small-resnet18 1 0 --preset resnet18 --dtype float32
for preset in small-vgg19 small-resnet50; do compared 5e-2 small "$preset" 1 0 --preset "$preset" --dtype float32; done
compared 1e-4 small small-llama 1 0 --preset small-llama --dtype float32
# The norm at step 3 differs by 0.4 % between our kernels and PyTorch's on one CPU.
compared 2e-2 small small-llama-bf16 1 0 --preset small-llama --dtype bfloat16
"$python" -c 'import json, sys; print(json.dumps([json.loads(line) for line in sys.stdin], indent=1))' <"$scratch/models.jsonl" >"$out/models/models.json"

# A Llama of a billion parameters, as scripts/benchmark/gpu_peer.py has it, and four of its layers.
"$python" scripts/benchmark/gpu_peer.py --write-config "$scratch/large.json"
"$python" scripts/benchmark/gpu_peer.py --write-config "$scratch/wide.json" --layers 4

# To be profiled there: archives without weights.
profiled() {
  local name=$1
  shift
  "$python" scripts/export.py "$@" --headless -o "$out/models/profile-$name.pt2" 2>"$scratch/said" || { cat "$scratch/said" >&2; return 1; }
}
profiled tiny --preset tiny-llama
profiled small --preset small-llama --dtype float32
profiled small-bf16 --preset small-llama --dtype bfloat16
profiled wide --hf-config "$scratch/wide.json" --dtype bfloat16 --batch 1 --seq 4096
# Compiled there with the profile of four of its layers; also a plan without one, to be started before anything is profiled.
model large 1 0 --hf-config "$scratch/large.json" --dtype bfloat16 --batch 1 --seq 4096
cp "$scratch/large.pt2" "$out/models/profile-large.pt2"
find "$out" -type f -print0 | xargs -0 -P 2 -n 4 xz -6
bytes=$(du -sb "$out" | cut -f 1)
# A file travels in whole blocks of 512 bytes, one of them its header.
with_checkout=$((bytes + $(git ls-files -z | xargs -0 stat -c %s | awk '{bytes += 512 + int(($1 + 511) / 512) * 512} END {print bytes}')))
echo "$out: $bytes bytes, $with_checkout with the checkout"
[ "$with_checkout" -le $((64 << 20)) ] || { echo "gpu_bundle.sh: more than 64 MiB" >&2; exit 1; }
