#!/usr/bin/env bash
# Formats the C++ and Python sources in place: those given, or all. Needs clang-format, and ruff in build/venv.
set -euo pipefail
cd "$(dirname "$0")/.."
files=("$@")
if [ "$#" -eq 0 ]; then
  mapfile -t files < <(git ls-files 'src/*.cpp' 'src/*.h' 'runtime/*.cpp' 'runtime/*.h' 'cli/*.cpp' 'cli/*.h' 'tests/*.cpp' 'tests/*.h' '*.py')
fi
cpp=() python=()
for file in "${files[@]}"; do
  case "$file" in
    *.py) python+=("$file") ;;
    *) cpp+=("$file") ;;
  esac
done
[ "${#cpp[@]}" -eq 0 ] || clang-format -i "${cpp[@]}"
[ "${#python[@]}" -eq 0 ] || build/venv/bin/ruff format --quiet "${python[@]}"
