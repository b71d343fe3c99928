#!/usr/bin/env bash
# The tests. Sets everything up first; needs root on a fresh machine. Ends with a table of the sections; exits 1 if one failed.
#   scripts/test.sh          unit tests and a sample of the matrix that covers every pair of values
#   scripts/test.sh --full   every combination, builds without torch and MPI, sanitizers
set -euo pipefail
cd "$(dirname "$0")/.."
full=0
case "${1:-}" in
  "") ;;
  --full) full=1 ;;
  *) echo "test.sh: unknown argument $1; there is only --full" >&2; exit 64 ;;
esac
exec </dev/null
scripts/setup.sh
python=build/venv/bin/python
passed=0 failed=0 table="" names=""

# Sets `cpu` to the processor time of everything that ended so far, in seconds. (A subshell would count only its own.)
note_cpu() {
  times >build/times.txt
  cpu=$(awk 'NR == 2 { for (i = 1; i <= 2; i++) { split($i, part, /[ms]/); sum += part[1] * 60 + part[2] } printf "%d", sum }' build/times.txt)
}

# section TITLE COMMAND...: runs it, notes how it ended and which tests failed, goes on in either case.
section() {
  local title=$1 started=$SECONDS result=ok before log=build/section.log
  note_cpu
  before=$cpu
  shift
  printf '\n== %s\n' "$title"
  if "$@" 2>&1 | tee "$log"; then
    passed=$((passed + 1))
  else
    result="FAILED (exit $?)" failed=$((failed + 1))
    names+="$title: $(python3 scripts/failed_names.py "$log" || true)"$'\n'
  fi
  note_cpu
  table+=$(printf '%-55s %5d s %5d s of CPU  %s' "$title" $((SECONDS - started)) $((cpu - before)) "$result")$'\n'
}

run_ctest() { ctest --test-dir "build/$1" -LE "$2" --no-tests=error --output-on-failure --parallel "$(nproc)"; }
preset() {
  cmake --preset "$1" >"build/configure-$1.log" 2>&1 || { cat "build/configure-$1.log"; return 1; }
  cmake --build "build/$1" && run_ctest "$1" gpu
}
# Unit tests, then jobs that save, are killed and resume.
sanitizer() { preset "$1" && DCC_SLOW_TESTS=0 DCC_BIN_DIR=build/$1/bin $python tests/e2e/discover.py native_resume_test.py crash_test.py; }
# How many test files, or models, run at the same time: one more than cores, since ranks wait for each other; a test starts up to 4 ranks and may take 4 GiB.
jobs=$(awk -v cores="$(nproc)" '/^MemTotal/ { fit = int($2 / 4194304); jobs = cores < fit ? cores + 1 : fit; print jobs < 1 ? 1 : jobs }' /proc/meminfo)
end_to_end() { $python tests/e2e/discover.py --jobs "$jobs" --skips build/skipped_tests.txt --parity "$([ "$full" = 1 ] && echo full || echo sample)"; }

section "who includes whom" python3 scripts/check_includes.py
section "who imports whom" python3 scripts/check_imports.py
section "error codes" python3 scripts/error_codes.py
section "words" python3 scripts/check_words.py
section "building the tests" cmake --build build/release
exclude='gpu|slow'
[ "$full" = 0 ] || { exclude='gpu' && export DCC_SLOW_TESTS=1; }
section "unit tests, kernels, communicators, command lines" run_ctest release "$exclude"
section "end to end: exporter, training against PyTorch, bits" end_to_end
section "skipped tests have an allowed reason" python3 scripts/check_skips.py build/release/Testing/Temporary/LastTest.log build/skipped_tests.txt
if [ "$full" = 1 ]; then
  section "no torch, no MPI" preset bare
  section "address and undefined-behaviour sanitizers" sanitizer asan
  section "thread sanitizer" sanitizer tsan
fi

printf '\n== summary (%d s)\n%ssections: %d passed, %d failed\n' "$SECONDS" "$table" "$passed" "$failed"
[ -z "$names" ] || printf 'what failed:\n%s' "$names"
[ "$failed" -eq 0 ]
