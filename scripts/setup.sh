#!/usr/bin/env bash
# Prepares a fresh Debian 12 machine and builds dcc and dcrun. Safe to run again: what is there is kept.
# After it: build/bin/dcc, build/bin/dcrun, build/venv/bin/python.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(build-essential ccache cmake ninja-build git ca-certificates python3 python3-venv
          libflatbuffers-dev flatbuffers-compiler libcli11-dev nlohmann-json3-dev libgtest-dev libgmock-dev
          libssl-dev zlib1g-dev libopenmpi-dev openmpi-bin mpich iproute2)

install_packages() {
  local missing=() package
  for package in "${packages[@]}"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  [ "${#missing[@]}" -eq 0 ] && return
  if [ "$(id -u)" -ne 0 ]; then
    echo "setup.sh: missing packages: ${missing[*]}; run it as root, or install them" >&2
    exit 77
  fi
  echo "setup: installing ${#missing[@]} Debian packages" >&2
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# The CUDA runtime libraries of libtorch's wheel weigh 3 GB; a machine with the CUDA 13 toolkit has them already.
has_cuda13() { ldconfig -p | grep -q 'libcudart\.so\.13'; }

install_python() {
  local stamp=build/venv/.ready-torch-2.11.0-transformers-5.17.0
  [ -e "$stamp" ] && return
  echo "setup: installing PyTorch 2.11.0 and transformers 5.17.0 into build/venv" >&2
  mkdir -p build
  [ -x build/venv/bin/python ] || python3 -m venv build/venv
  local pip="build/venv/bin/pip install -q --disable-pip-version-check"
  if has_cuda13; then
    $pip --no-deps torch==2.11.0 torchvision==0.26.0 nvidia-cusparselt-cu13 nvidia-nvshmem-cu13 nvidia-cufile
    $pip numpy pillow safetensors sympy networkx jinja2 fsspec filelock typing_extensions transformers==5.17.0
  else
    $pip torch==2.11.0 torchvision==0.26.0 numpy safetensors transformers==5.17.0
  fi
  touch "$stamp"
}

build() {
  cmake --preset release >build/configure.log || { cat build/configure.log >&2; exit 1; }
  cmake --build build/release
  ln -sfn release/bin build/bin
}

install_packages
install_python
build
echo "setup: build/bin/dcc and build/bin/dcrun are ready" >&2
