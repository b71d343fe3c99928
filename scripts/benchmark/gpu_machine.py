"""What a machine with a GPU has, as a line of JSON: GPUs and libraries by their own calls, so without nvidia-smi. gpu.py runs it with the libraries that dcrun gets."""

import ctypes
import json
import os
import platform
import shutil
import subprocess
import sys

ATTRIBUTES = {"multiprocessors": 16, "major": 75, "minor": 76}
LIBRARIES = {  # names, the call that says the version, pointers to integers that it fills
    "nvrtc": (("libnvrtc.so.13", "libnvrtc.so.12"), "nvrtcVersion", 2),
    "cublasLt": (("libcublasLt.so.13", "libcublasLt.so.12"), "cublasLtGetVersion", 0),
    "nccl": (("libnccl.so.2",), "ncclGetVersion", 1),
}


def said(command):
    if shutil.which(command[0]) is None:
        return None
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=15).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return None


def gpus():
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return {"error": str(error)}
    code = cuda.cuInit(0)
    if code != 0:
        return {"error": f"cuInit gives {code}"}
    version, count = ctypes.c_int(), ctypes.c_int()
    cuda.cuDriverGetVersion(ctypes.byref(version))
    cuda.cuDeviceGetCount(ctypes.byref(count))
    found = []
    for ordinal in range(count.value):
        device, name, value = ctypes.c_int(), ctypes.create_string_buffer(128), ctypes.c_int()
        cuda.cuDeviceGet(ctypes.byref(device), ordinal)
        cuda.cuDeviceGetName(name, 128, device)
        one = {"name": name.value.decode(errors="replace")}
        for attribute, number in ATTRIBUTES.items():
            cuda.cuDeviceGetAttribute(ctypes.byref(value), number, device)
            one[attribute] = value.value
        if hasattr(cuda, "cuDeviceTotalMem_v2"):
            total = ctypes.c_size_t()
            cuda.cuDeviceTotalMem_v2(ctypes.byref(total), device)
            one["bytes"] = total.value
        found.append(one)
    return {"driver": version.value, "devices": found}


def library(names, call, integers):
    for name in names:
        try:
            loaded = ctypes.CDLL(name)
        except OSError:
            continue
        if not hasattr(loaded, call):
            return name
        values = [ctypes.c_int() for _ in range(integers)]
        function = getattr(loaded, call)
        function.restype = ctypes.c_int if integers else ctypes.c_size_t
        code = function(*(ctypes.byref(value) for value in values))
        return f"{name} {'.'.join(str(value.value) for value in values) or code}"
    return None


def runtime():
    """gVisor forbids what compute-sanitizer and CUDA IPC need."""
    kernel = platform.release()
    is_gvisor = kernel == "4.4.0" or "gVisor" in (said(["dmesg"]) or "")
    return f"{'gVisor' if is_gvisor else 'no gVisor'}, kernel {kernel}"


def main():
    fields = "name,driver_version,memory.used,memory.total,clocks.sm,clocks.max.sm,clocks.mem,power.draw,power.limit,pstate"
    print(
        json.dumps(
            {
                "python": f"{sys.executable} {platform.python_version()}",
                "libc": " ".join(platform.libc_ver()),
                "cores": os.cpu_count(),
                "runtime": runtime(),
                "gpus": gpus(),
                "libraries": {name: library(*how) for name, how in LIBRARIES.items()},
                "nvidia_smi": said(["nvidia-smi", f"--query-gpu={fields}", "--format=csv"]),
                "tools": [tool for tool in ("gcc", "nvcc", "compute-sanitizer", "ncu") if shutil.which(tool)],
            }
        )
    )


if __name__ == "__main__":
    main()
