#!/usr/bin/env bash
# Prepares a fresh Debian 12 machine and builds dcc and dcrun. Safe to run again: what is there is kept, and a step that was cut off is done over.
# After it: build/bin/dcc, build/bin/dcrun, build/venv/bin/python. Exit codes: 77 without root where packages are missing, 69 if a step failed.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(build-essential ccache cmake ninja-build git ca-certificates python3 python3-venv
          libflatbuffers-dev flatbuffers-compiler libcli11-dev nlohmann-json3-dev libgtest-dev libgmock-dev
          libssl-dev zlib1g-dev libdnnl-dev libmimalloc-dev libopenmpi-dev openmpi-bin mpich iproute2)
python=build/venv/bin/python

say() { echo "setup: $*" >&2; }
fail() { echo "setup.sh: $*" >&2; exit 69; }

install_packages() {
  command -v apt-get >/dev/null || fail "this is no Debian (there is no apt-get); install these yourself and build with cmake --preset release: ${packages[*]}"
  local missing=() package installed
  installed=$(dpkg-query -W -f '${Package}=${Status}\n' "${packages[@]}" 2>/dev/null || true)
  for package in "${packages[@]}"; do [[ $'\n'$installed$'\n' == *$'\n'"$package=install ok installed"$'\n'* ]] || missing+=("$package"); done
  [ "${#missing[@]}" -eq 0 ] && return
  if [ "$(id -u)" -ne 0 ]; then
    echo "setup.sh: Debian packages are missing; run scripts/setup.sh once as root, or as root: apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 77
  fi
  say "installing Debian packages: ${#missing[@]} are missing (all of them take a minute or two)"
  mkdir -p build
  export DEBIAN_FRONTEND=noninteractive
  { apt-get update && apt-get install -y --no-install-recommends -o Dpkg::Use-Pty=0 "${missing[@]}"; } \
    >build/packages.log 2>&1 </dev/null || { tail -n 15 build/packages.log >&2; fail "apt-get could not install the packages (above, and build/packages.log); mend that and run again"; }
}

# The CUDA libraries that libtorch's wheel asks for weigh 3 GB; a machine with the CUDA 13 toolkit has them already.
has_cuda13() { local known; known=$(PATH=$PATH:/usr/sbin:/sbin ldconfig -p) && [[ $known == *libcudart.so.13* ]]; }

# Without byte code for all of torch and transformers: what is imported gets it then, the rest would take a minute.
pip() { "$python" -m pip install -q --no-compile --disable-pip-version-check --no-input "$@" </dev/null; }

install_wheels() {
  local light=(numpy pillow safetensors transformers==5.17.0) torch=(torch==2.11.0 torchvision==0.26.0)
  if has_cuda13; then
    say "installing PyTorch 2.11.0 and transformers 5.17.0 into build/venv, without the CUDA libraries of this machine"
    # The versions are those that this torch asks for. It comes last: pip would complain about what is left out.
    pip sympy networkx jinja2 fsspec filelock typing_extensions "${light[@]}" &&
      pip --no-deps "${torch[@]}" nvidia-cusparselt-cu13==0.8.0 nvidia-nvshmem-cu13==3.4.5 nvidia-cufile || return
    "$python" -c 'import torch' 2>/dev/null && return
    say "that PyTorch does not load here: a CUDA library of this machine is missing; installing PyTorch's own"
  else
    say "installing PyTorch 2.11.0 and transformers 5.17.0 into build/venv (a download of about 3 GB, some minutes)"
  fi
  pip "${torch[@]}" "${light[@]}"
}

install_python() {
  local stamp=build/venv/.ready-torch-2.11.0-transformers-5.17.0
  [ -e "$stamp" ] && [ -x "$python" ] && return
  mkdir -p build
  "$python" -m pip --version >/dev/null 2>&1 || python3 -m venv --clear build/venv || fail "python3 -m venv failed (above); Debian's package python3-venv provides it"
  install_wheels || fail "pip could not install the Python packages (above); mend that and run again: what was downloaded is kept"
  "$python" -c 'import torch, transformers, safetensors' || fail "PyTorch is installed but does not load (above); delete build/venv and run again"
  touch "$stamp"
}

build() {
  [ -d build/release ] || say "building dcc and dcrun (a few minutes)"
  cmake --preset release >build/configure.log 2>&1 || { cat build/configure.log >&2; fail "cmake could not configure the build (above)"; }
  cmake --build build/release --target programs || fail "the build failed (above)"
  ln -sfn release/bin build/bin
}

install_packages
install_python
build
say "build/bin/dcc and build/bin/dcrun are ready"
