#!/usr/bin/env bash
# Looks for faults without running anything. Needs clang-format, clang-tidy, ruff in build/venv and a configured build/release or build/bare.
#   scripts/lint.sh             format and syntax of everything, clang-tidy over files changed since the last commit
#   scripts/lint.sh --sample    clang-tidy over files changed by the last commit, and a twentieth of the programs' files: every day another
#   scripts/lint.sh --all       clang-tidy over everything (about 3 s a file)
#   scripts/lint.sh FILE...     clang-tidy over these files
set -euo pipefail
cd "$(dirname "$0")/.."
programs=('src/*.cpp' 'runtime/*.cpp' 'cli/*.cpp')
cpp=("${programs[@]}" 'tests/*.cpp')
headers=('src/*.h' 'runtime/*.h' 'cli/*.h' 'tests/*.h')

mapfile -t all < <(git ls-files "${cpp[@]}" "${headers[@]}")
clang-format --dry-run -Werror "${all[@]}"
ruff=build/venv/bin/ruff
[ -x "$ruff" ] || { echo "lint.sh: no $ruff; run build/venv/bin/pip install ruff==0.17.6" >&2; exit 69; }
mapfile -t python < <(git ls-files '*.py')
"$ruff" format --quiet --diff "${python[@]}"
"$ruff" check --quiet "${python[@]}"
python3 scripts/check_includes.py
python3 scripts/check_imports.py
python3 scripts/error_codes.py
python3 scripts/check_words.py

case "${1:-}" in
  '') mapfile -t files < <(git diff --name-only --diff-filter=d HEAD -- "${cpp[@]}"; git ls-files -o --exclude-standard -- "${cpp[@]}") ;;
  --sample)
    mapfile -t files < <({
      git diff --name-only --diff-filter=d HEAD^ HEAD -- "${cpp[@]}" 2>/dev/null || true
      git ls-files "${programs[@]}" | awk -v part="$(($(date +%s) / 86400 % 20))" 'NR % 20 == part'
    } | sort -u) ;;
  --all) mapfile -t files < <(git ls-files "${cpp[@]}") ;;
  *) files=("$@") ;;
esac
[ "${#files[@]}" -gt 0 ] || exit 0
for build in build/release build/bare ''; do
  [ -n "$build" ] || { echo "lint.sh: no build/release or build/bare; run cmake --preset bare" >&2; exit 69; }
  [ ! -e "$build/compile_commands.json" ] || break
done
# The commands of that build, but for each file alone, and without what gcc precompiled, which clang cannot read; its generated headers serve.
cmake --preset "${build#build/}" -B build/lint -DDCC_UNITY_BUILD=OFF -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON >build/configure-lint.log 2>&1 || { cat build/configure-lint.log >&2; exit 69; }
sed -i -E "s/ -fpch-preprocess//g; s#$PWD/build/lint/generated#$PWD/$build/generated#g" build/lint/compile_commands.json
# Left out are files of another build (a plug-in without its library), which are in no compile command.
known=()
for file in "${files[@]}"; do
  ! grep -q "\"file\": \"$PWD/$file\"" build/lint/compile_commands.json || known+=("$file")
done
[ "${#known[@]}" -gt 0 ] || exit 0
printf '%s\n' "${known[@]}" | xargs -P "$(nproc)" -n 4 clang-tidy -p build/lint --header-filter="^$PWD/(src|runtime|cli|tests)/" --quiet --extra-arg=-Wno-unknown-warning-option --extra-arg=-Wno-unknown-pragmas
