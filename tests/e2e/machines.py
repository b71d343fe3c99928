"""Lesser machines than this one, as far as the libraries can be told: which vector instructions ATen and oneDNN may use."""

import datetime
import itertools
import os
import sys

_ATEN = ("default", "avx2")
_ONEDNN = ("SSE41", "AVX2", "AVX512_CORE", "AVX512_CORE_BF16")
# Name: (ATEN_CPU_CAPABILITY, ONEDNN_MAX_CPU_ISA)
SETTINGS = {f"{aten}-{isa.lower()}": (aten, isa) for aten, isa in itertools.product(_ATEN, _ONEDNN)}
NAMES = ("rotating", *SETTINGS)
_VARIABLES = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA")


def of_today():
    """Each setting has its turn, every day another."""
    return list(SETTINGS)[datetime.date.today().toordinal() % len(SETTINGS)]


def become(name):
    """Starts this program again under the setting, since libraries read it when they are loaded. Returns if it is so already."""
    wanted = dict(zip(_VARIABLES, SETTINGS[name], strict=True))
    if all(os.environ.get(key) == value for key, value in wanted.items()):
        return
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **wanted})


def cpu():
    """{field: value} of the first processor in /proc/cpuinfo."""
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        fields = dict(line.split(":", 1) for line in file.read().split("\n\n")[0].splitlines() if ":" in line)
    return {key.strip(): value.strip() for key, value in fields.items()}


def describe():
    """The CPU and what of it the libraries use: figures depend on it."""
    import torch

    fields = cpu()
    flags = fields.get("flags", "").split()
    known = [flag for flag in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if flag in flags]
    limits = [f"{name}={os.environ[name]}" for name in _VARIABLES if name in os.environ]
    capability = torch.backends.cpu.get_cpu_capability()
    return ", ".join([fields.get("model name", "an unnamed CPU"), " ".join(known), f"ATen uses {capability}", *limits])
