#!/usr/bin/env bash
# Formats the C++ sources in place: those given, or all.
set -euo pipefail
cd "$(dirname "$0")/.."
files=("$@")
if [ "$#" -eq 0 ]; then
  mapfile -t files < <(git ls-files 'src/*.cpp' 'src/*.h' 'runtime/*.cpp' 'runtime/*.h' 'cli/*.cpp' 'cli/*.h' 'tests/*.cpp' 'tests/*.h')
fi
clang-format -i "${files[@]}"
