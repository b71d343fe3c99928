#!/usr/bin/env bash
# Formats the C++ and Python sources in place: those given, or all.
set -euo pipefail
cd "$(dirname "$0")/.."
files=("$@")
if [ "$#" -eq 0 ]; then
  mapfile -t files < <(git ls-files 'src/*.cpp' 'src/*.h' 'runtime/*.cpp' 'runtime/*.h' 'cli/*.cpp' 'cli/*.h' 'tests/*.cpp' 'tests/*.h' '*.py')
fi
for file in "${files[@]}"; do
  case "$file" in
    *.py) build/venv/bin/ruff format --quiet "$file" ;;
    *) clang-format -i "$file" ;;
  esac
done
