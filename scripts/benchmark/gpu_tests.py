"""gpu.py's stages of kernels: GoogleTest programs of the bundle. A test that ends its process, or breaks the GPU's context, fails alone."""

import concurrent.futures
import json
import os

from gpu_runner import Failed

BATCHES = 8  # of samples, at once
EXPRESSIONS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "data", "fused_expressions.txt")
# What asks a double to fail or is of it alone; what needs oneDNN or NCCL, which the bundle does not have; f64, whose functions are the library's on a GPU, with
# other last bits.
LEFT_OUT = "*DeathTest*:*OfTheDouble*:NoCudaDevice*:*/NoCudaDevice*:Nvrtc*:KernelCompiler*:CudaOutputLayer*:IpcChoice*:*CudaOperators*/f64"
# More than two processes that share a GPU: it gives each a slice of 2 ms in turn, and ranks meet some hundred times.
LEFT_OUT += ":IpcProcesses.Three*:IpcProcessGroups.*"


def tests_of(runner, program, *options):
    """Names of tests, by suite."""
    suites, suite = {}, ""
    for line in runner.run([program, "--gtest_list_tests", *options], 30).splitlines():
        if line.startswith("  "):
            suites[suite].append(suite + line.split("#")[0].strip())
        elif line.split("#")[0].strip().endswith("."):
            suite = line.split("#")[0].strip()
            suites[suite] = []
    return suites


def outcomes(runner, program, names, seconds, environment):
    """Of tests in one process: name -> None or the first lines of the failure. Nothing of those that it did not come to."""
    report = os.path.join(runner.folder(), "report.json")
    command = [program, "--gtest_filter=" + ":".join(names), f"--gtest_output=json:{report}"]
    try:
        runner.run(command, seconds, codes=(0, 1), **environment)
        with open(report) as file:
            suites = json.load(file)["testsuites"]
    except (Failed, OSError, ValueError) as error:
        return {names[0]: str(error)} if len(names) == 1 else {}
    found = {}
    for suite in suites:
        for test in suite["testsuite"]:
            failures = test.get("failures", [])
            found[f"{suite['name']}.{test['name']}"] = failures[0]["failure"][:600] if failures else None
    return found


def run_tests(runner, program, batches, seconds, environment=None, at_once=1, most=float("inf")):
    """Each batch in a separate process for at most so many seconds, so many at once, then what failed or did not run alone, four at a time. True if all passed, and figures."""
    ends, environment = runner.left() - seconds, environment or {}
    left = lambda: max(1, runner.left() - ends)
    limit = lambda: min(left(), most)
    names = [name for batch in batches for name in batch]
    found = {}
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        for outcome in pool.map(lambda batch: outcomes(runner, program, batch, limit(), environment), batches):
            found.update(outcome)
    again = [name for name in names if found.get(name, "not run") is not None]
    if len(names) > 1:
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            for name, alone in zip(again, pool.map(lambda name: outcomes(runner, program, [name], limit(), environment), again), strict=True):
                found[name] = alone.get(name, "not run") and f"alone: {alone.get(name, 'not run')}"
    failed = {name: why for name, why in found.items() if why is not None}
    figures = {"tests": len(names), "passed": len(names) - len(failed), "failed": failed, "seconds": round(seconds - left(), 1)}
    if again and len(again) > len(failed):
        figures["passed_only_alone"] = sorted(set(again) - set(failed))
    return not failed and not figures.get("passed_only_alone"), figures


def by_suites(runner, name, seconds, **how):
    program = runner.program("tests", name)
    return run_tests(runner, program, list(tests_of(runner, program, "--gtest_filter=-" + LEFT_OUT).values()), seconds, **how)


def one_by_one(runner, name, seconds, **how):
    program = runner.program("tests", name)
    suites = tests_of(runner, program, "--gtest_filter=-" + LEFT_OUT)
    return run_tests(runner, program, [[test] for tests in suites.values() for test in tests], seconds, **how)


def device(runner):
    """Memory, streams, events, graphs; plans by hand on them."""
    of_device, of_executor = by_suites(runner, "dcr_cuda_device_test", 30), by_suites(runner, "dcr_cuda_exec_test", 40)
    return of_device[0] and of_executor[0], {"device": of_device[1], "executor": of_executor[1]}


def kernels(runner):
    """Kernels of the step and of the model next to the CPU's."""
    return by_suites(runner, "dcr_cuda_kernel_test", 100, environment={"DCC_EXPRESSIONS": EXPRESSIONS}, at_once=4)


def samples(runner):
    """Kernels of the model on PyTorch's samples of every operator; on a double on some of them."""
    environment = {} if runner.double else {"DCC_SLOW_TESTS": "1"}
    environment |= {f"DCC_{name.upper()}_SAMPLES": runner.program("tests", name + "_samples.txt") for name in ("aten", "native")}
    program = runner.program("tests", "cuda_samples_test")
    every = [test for tests in tests_of(runner, program).values() for test in tests]
    return run_tests(runner, program, [every[i::BATCHES] for i in range(BATCHES)], 100, environment, at_once=BATCHES)
