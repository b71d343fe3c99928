#!/usr/bin/env bash
# The tests. Sets everything up first; needs root on a fresh machine.
#   scripts/test.sh          unit tests and a sample of the matrix that covers every pair of values
#   scripts/test.sh --full   every combination, builds without torch and MPI, sanitizers
set -euo pipefail
cd "$(dirname "$0")/.."
full=0
[ "${1:-}" = "--full" ] && full=1
scripts/setup.sh
python=build/venv/bin/python
title() { printf '\n== %s (%d s)\n' "$*" "$SECONDS"; }
preset() { cmake --preset "$1" >"build/configure-$1.log" && cmake --build "build/$1" && ctest --test-dir "build/$1" -LE 'gpu' --output-on-failure; }

title "who includes whom"
python3 scripts/check_includes.py

title "unit tests, kernels, communicators, command lines"
exclude='gpu'
[ "$full" = 1 ] || exclude='gpu|slow'
ctest --test-dir build/release -LE "$exclude" --output-on-failure

title "exporter"
$python -m unittest discover -s tests/e2e -p 'export*_test.py'

title "training against PyTorch"
if [ "$full" = 1 ]; then $python tests/e2e/parity.py --full; else $python tests/e2e/parity.py; fi

title "examples"
for example in examples/*/run.sh; do "$example"; done

if [ "$full" = 1 ]; then
  title "no torch, no MPI"
  preset bare
  title "address and undefined-behaviour sanitizers"
  preset asan
  title "thread sanitizer"
  preset tsan
fi
title "all tests passed"
