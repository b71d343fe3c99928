"""gpu.py's stage of faults: a missing library, a full GPU, a plan for another device, a killed rank: each ends with its error and exit code."""

import ctypes
import os
import signal
import subprocess
import sys
import time

from gpu_runner import Failed

HERE = os.path.dirname(os.path.abspath(__file__))
LIBRARIES = {
    "cuda": ("libcuda.so.1",),
    "nvrtc": ("libnvrtc.so.13", "libnvrtc.so.12"),
    "cublasLt": ("libcublasLt.so.13", "libcublasLt.so.12"),
    "nccl": ("libnccl.so.2",),
}
NAMED_WITHIN_S = 5.0
LEFT_BYTES = 256 << 20  # of a GPU whose memory others have


def hold_memory():
    """Takes all of a GPU's memory but LEFT_BYTES, says so, and keeps it until it is ended."""
    cuda = ctypes.CDLL("libcuda.so.1")
    context, address, free, total = ctypes.c_void_p(), ctypes.c_ulonglong(), ctypes.c_size_t(), ctypes.c_size_t()
    codes = [cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), cuda.cuCtxSetCurrent(context)]
    codes.append(cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)))
    codes.append(cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(free.value - LEFT_BYTES - (600 << 20))))
    print("holds" if not any(codes) else f"failed: {codes}", flush=True)
    signal.pause()


def hidden(runner, *names):
    """The environment in which these libraries are found, and are none."""
    folder = runner.folder()
    for name in names:
        for file in LIBRARIES[name]:
            with open(os.path.join(folder, file), "w") as none:
                none.write("no library")
    return {"LD_LIBRARY_PATH": folder + ":" + runner.environment()["LD_LIBRARY_PATH"]}


def command_of(runner, plan, world=1, options=("--device", "cuda"), steps=1):
    dcrun = [runner.program("bin", "dcrun"), *(["-n", str(world)] if world > 1 else []), plan]
    return [*dcrun, "--weights", "init:1", "--data", "synthetic:1", "--steps", str(steps), *options]


def refusals(runner):
    """name, exit code, words of what is said, command, environment."""
    alone, two = (command_of(runner, runner.program("models", f"{name}.dcp"), world) for name, world in (("tiny-llama", 1), ("tiny-llama-2-ranks", 2)))
    yield "no driver", 69, ("DC6140",), alone, hidden(runner, "cuda")
    yield "no driver, two ranks", 69, ("DC6140",), two, hidden(runner, "cuda")
    yield "no GPU is shown", 69, ("DC6142",), alone, {"CUDA_VISIBLE_DEVICES": "", "DOUBLE_GPUS": "0"}
    yield "no NVRTC", 69, ("DC6150",), alone, hidden(runner, "nvrtc")
    yield "no cuBLASLt", 69, ("DC6157",), alone, hidden(runner, "cublasLt")
    yield "no NCCL where it is asked for", 69, ("DC6160",), [*two, "--comm", "tcp"], hidden(runner, "nccl")
    plan = os.path.join(runner.folder(), "gpu.dcp")
    profile = os.path.join(HERE, "..", "..", "examples", "profiles", "h200x8.json")
    archive = runner.program("models", "profile-tiny.pt2")
    runner.run([runner.program("bin", "dcc"), "compile", archive, "--profile", profile, "--world", "1", "--device", "cuda", "--no-cache", "-o", plan], 60)
    yield "a GPU's plan on the CPU", 76, ("DC6606", "'cuda'", "'cpu'"), command_of(runner, plan, options=("--device", "cpu")), {}


def full(runner):
    """A GPU whose memory others have: what is free and what is needed."""
    if runner.double:
        command, taken = command_of(runner, runner.program("models", "tiny-llama.dcp")), {"DOUBLE_MEMORY": "20000"}
        return runner.run(command, 60, codes=(80,), **taken)
    holder = subprocess.Popen([sys.executable, os.path.abspath(__file__)], stdout=subprocess.PIPE, text=True, env=runner.environment())
    try:
        said = holder.stdout.readline().strip()
        if said != "holds":
            raise Failed(f"the GPU's memory is not taken: {said}")
        return runner.run(command_of(runner, runner.program("models", "large.dcp")), 60, codes=(80,))
    finally:
        holder.kill()
        holder.wait()


def ranks_of(launcher):
    """Process of each rank that `dcrun -n` has started."""
    ranks = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat") as file:
                parent = int(file.read().rpartition(")")[2].split()[1])
            with open(f"/proc/{entry}/environ", "rb") as file:
                variables = dict(pair.split("=", 1) for pair in file.read().decode(errors="replace").split("\0") if "=" in pair)
        except (OSError, ValueError):
            continue
        if parent == launcher and "DCRUN_RANK" in variables:
            ranks[int(variables["DCRUN_RANK"])] = int(entry)
    return ranks


def killed(runner):
    """Seconds from a rank's SIGKILL to the end of its peer, which names it."""
    folder = runner.folder()
    path, metrics = os.path.join(folder, "said"), os.path.join(folder, "metrics.jsonl")
    command = [*command_of(runner, runner.program("models", "tiny-llama-2-ranks.dcp"), 2, steps=1000000), "--metrics", metrics]
    with open(path, "w") as out:
        job = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=runner.environment(), start_new_session=True)
    try:
        until = time.monotonic() + 60
        while not (os.path.exists(metrics) and sum(1 for _ in open(metrics)) > 3):
            if job.poll() is not None or time.monotonic() > until:
                raise Failed("the job does not come to step 3")
            time.sleep(0.05)
        os.kill(ranks_of(job.pid)[1], signal.SIGKILL)
        began = time.monotonic()
        code = job.wait(30)
        took = time.monotonic() - began
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
    with open(path, errors="replace") as file:
        said = file.read()
    ok = code == 83 and "rank 1" in said and took <= NAMED_WITHIN_S
    return ok, {"exit": code, "seconds": round(took, 2), "said": [line for line in said.splitlines() if "exit 83" in line][-1:]}


def faults(runner):
    """Each refusal with its exit code and its error; a GPU that is full; a rank that is killed."""
    ok, figures = True, {}
    for name, code, words, command, environment in refusals(runner):
        try:
            said = runner.run(command, 60, codes=(code,), **environment)
            missing = [word for word in words if word not in said]
            figures[name] = f"exit {code}" if not missing else f"{missing} not in: {said[-400:]}"
            ok = ok and not missing
        except Failed as error:
            ok, figures[name] = False, str(error)
    try:
        said = full(runner)
        figures["a full GPU"] = next((line for line in said.splitlines() if "are free" in line), said[-400:])
        ok = ok and "are free" in said
    except Failed as error:
        ok, figures["a full GPU"] = False, str(error)
    is_named, figures["a killed rank"] = killed(runner)
    return ok and is_named, figures


if __name__ == "__main__":
    hold_memory()
