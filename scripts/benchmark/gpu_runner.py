"""Programs of a bundle (scripts/gpu_bundle.sh), each in its own session and for a limited time. Not a program; gpu.py uses it."""

import contextlib
import glob
import lzma
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time


class Failed(RuntimeError):
    pass


class Runner:
    """`double`: the folder of test doubles in place of CUDA's libraries, or None. `seconds`: until all must have ended. `out`: where figures go."""

    def __init__(self, bundle, double, seconds, out):
        self.out = out
        self.double = double and os.path.abspath(double)
        self.scratch = tempfile.mkdtemp(prefix="gpu-")
        self.bundle = os.path.join(self.scratch, "bundle")
        self.ends = time.monotonic() + seconds
        self.gpus = 0  # until one is found
        self.folders = [self.double] if double else folders_of_cuda()
        unpack(bundle, self.bundle)
        # The libraries of the machine, or those of the bundle where some are missing or too old.
        try:
            for program in ("dcrun", "dcc"):
                self.run([self.program("bin", program), "--version"], 20)
        except Failed:
            self.folders.append(self.program("lib"))

    def program(self, *path):
        return os.path.join(self.bundle, *path)

    def left(self):
        return self.ends - time.monotonic()

    def environment(self):
        """Of our programs. PyTorch keeps the environment that it was installed for."""
        path = [*self.folders, *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
        quick = {"DOUBLE_PAUSE_US": "0"} if self.double else {}
        return {**os.environ, **quick, "LD_LIBRARY_PATH": ":".join(path), "DCC_CACHE_DIR": os.path.join(self.scratch, "cache")}

    def run(self, command, seconds, environment=None, codes=(0,), **more):
        """What it wrote. Fails if it does not end in time or with another exit code. `environment`: by default that of our programs."""
        limit = min(seconds, self.left())
        if limit < 1:
            raise Failed("no time is left")
        surroundings = {**(self.environment() if environment is None else environment), **more}
        # Files, not pipes: what a program leaves running may hold a pipe open.
        with tempfile.TemporaryFile("w+", errors="replace", dir=self.scratch) as output:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=surroundings, start_new_session=True)
            try:
                code = process.wait(limit)
            except subprocess.TimeoutExpired:
                code = None
            for number in (signal.SIGTERM, signal.SIGKILL) if code is None else (signal.SIGKILL,):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(3)
            output.seek(0)
            text = output.read()
        if code not in codes:
            how = f"it did not end within {limit:.0f} s" if code is None else f"exit {code}"
            raise Failed(f"{os.path.basename(command[0])}: {how}: " + " | ".join(text.strip().splitlines()[-4:])[-1500:])
        return text

    def folder(self):
        return tempfile.mkdtemp(dir=self.scratch)

    def close(self):
        shutil.rmtree(self.scratch, ignore_errors=True)


def unpack(bundle, to):
    for folder, _, files in os.walk(bundle):
        there = os.path.join(to, os.path.relpath(folder, bundle))
        os.makedirs(there)
        for file in files:
            path = os.path.join(there, file.removesuffix(".xz"))
            with lzma.open(os.path.join(folder, file)) as packed, open(path, "wb") as plain:
                shutil.copyfileobj(packed, plain)
            os.chmod(path, 0o755)


def folders_of_cuda():
    """Of PyTorch's wheels, of the toolkit, of the driver where it lies outside of the system's folders."""
    patterns = [os.path.join(folder or ".", "nvidia", "*", "lib") for folder in sys.path]
    patterns += ["/usr/local/cuda/lib64", "/usr/local/cuda-1[23]*/lib64", "/usr/local/nvidia/lib64", "/usr/local/nvidia/lib"]
    return list(dict.fromkeys(folder for pattern in patterns for folder in sorted(glob.glob(pattern), reverse=True)))
