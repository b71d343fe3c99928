#!/usr/bin/env bash
# Looks for memory errors with clang's sanitizers: a sample of the unit tests, jobs that save, are killed and resume, then coverage-guided fuzzing of every
# reader of files and messages from outside. Needs clang, libclang-rt-dev and the tests in build/release (they give the first inputs). A new random seed
# each time; libFuzzer prints it.
#   scripts/fuzz.sh             a minute of fuzzing, over all targets
#   scripts/fuzz.sh SECONDS
#   scripts/fuzz.sh --of-the-day  a minute, on six days of seven without the targets that hold the compiler, which take minutes to build
# What breaks a target is kept in build/fuzz/found. Exit codes: 1 if something broke, 64 usage, 69 without clang.
set -euo pipefail
cd "$(dirname "$0")/.."
mapfile -t targets < <(sed -n 's/^dc_fuzz(\([a-z]*\) .*/\1_fuzz/p' tests/fuzz/CMakeLists.txt | sort)
if [ "${1:-}" = --of-the-day ]; then
  shift
  day=${DCC_TEST_DAY:-$(python3 -c 'import datetime; print(datetime.date.today().toordinal())')}
  echo "DCC_TEST_DAY=$day"
  if ((day % 7 != 0)); then mapfile -t targets < <(printf '%s\n' "${targets[@]}" | grep -vxE 'archive_fuzz|step_fuzz'); fi
fi
seconds=${1:-60}
[[ $seconds =~ ^[1-9][0-9]*$ ]] || { echo "fuzz.sh: SECONDS must be a positive number, not '$seconds'" >&2; exit 64; }
command -v clang++ >/dev/null || { echo "fuzz.sh: there is no clang++; install clang and libclang-rt-dev" >&2; exit 69; }
sample=(archive_test base_test cache_test dcr_plan_test dcr_verify_test fused_kernel_test native_attention_test native_kernel_test)
jobs=(native_resume_test.py crash_test.py)

cmake --preset fuzz >build/configure-fuzz.log 2>&1 || { cat build/configure-fuzz.log >&2; exit 1; }
cmake --build build/fuzz --target "${targets[@]}" "${sample[@]}" dcrun make_training_plan fault_at
failed=0
for test in "${sample[@]}"; do
  build/fuzz/bin/"$test" --gtest_brief=1 || { echo "fuzz.sh: $test fails under sanitizers"; failed=1; }
done
for test in "${jobs[@]}"; do
  DCC_BIN_DIR=build/fuzz/bin build/venv/bin/python "tests/e2e/$test" || { echo "fuzz.sh: $test fails under sanitizers"; failed=1; }
done

each=$(((seconds + ${#targets[@]} - 1) / ${#targets[@]}))
mkdir -p build/fuzz/found
for target in "${targets[@]}"; do
  corpus=build/fuzz/corpus/$target seeds=build/fuzz/seeds/$target
  mkdir -p "$corpus" "$seeds"
  DC_FUZZ_SEEDS=$seeds build/release/bin/"${target}_test" --gtest_brief=1 >/dev/null
  echo "== $target, $each s"
  if ! build/fuzz/bin/"$target" -max_total_time="$each" -timeout=20 -rss_limit_mb=4096 -print_final_stats=1 \
    -artifact_prefix="build/fuzz/found/$target-" "$corpus" "$seeds" >build/fuzz/"$target".log 2>&1; then
    grep -v '^#' build/fuzz/"$target".log | tail -n 40
    echo "fuzz.sh: $target broke; run it again with build/fuzz/bin/$target build/fuzz/found/FILE"
    failed=1
  fi
  grep -E '^INFO: Seed|stat::number_of_executed_units|stat::new_units_added' build/fuzz/"$target".log || true
done
exit "$failed"
