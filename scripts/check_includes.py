#!/usr/bin/env python3
"""Checks who includes whom against the allow-list below. Exits 1 and lists every violation.

The map is the one of README.md: base < ir < {frontend, profile, analysis} < {cost, layout} < sim < passes < search < plan < cache in src,
{plan, device} < {memory, comm, kernel} < {exec, checkpoint} < {train, measure, page} in runtime. src and runtime share schemas and src/base; runtime/plan may be used by
src/{plan,sim,cache}. Heavy or foreign headers stay where they belong.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

SRC = {
    "base": set(),
    "ir": set(),
    "frontend": {"ir"},
    "profile": {"ir"},
    "analysis": {"ir"},
    "cost": {"ir", "profile", "analysis"},
    "layout": {"ir", "profile", "analysis", "cost"},
    "sim": {"ir", "profile", "analysis", "cost", "layout"},
    "passes": {"ir", "profile", "analysis", "cost", "layout", "sim"},
    "search": {"ir", "profile", "analysis", "cost", "layout", "sim", "passes"},
    "plan": {"ir", "profile", "analysis", "cost", "layout", "sim", "passes", "search"},
    "cache": {"ir", "profile", "analysis", "cost", "layout", "sim", "passes", "search", "plan"},
}
DOOR = {"plan", "sim", "cache"}  # folders of src that may use runtime/plan
RUNTIME = {
    "plan": set(),
    "device": set(),
    "memory": {"plan", "device"},
    "comm": {"plan", "device", "memory"},
    "kernel": {"plan", "device", "memory"},
    "exec": {"plan", "device", "memory", "comm", "kernel"},
    "checkpoint": {"plan", "device", "memory", "comm", "kernel"},
    "train": {"plan", "device", "memory", "comm", "kernel", "checkpoint", "exec"},
    "measure": {"plan", "device", "memory", "comm", "kernel", "exec"},
    "page": {"plan", "device", "memory", "comm", "kernel", "exec"},
}
# Foreign headers: pattern -> where they may appear (prefix of the path, suffix of the file name).
FOREIGN = {
    r"(ATen|c10|torch)/": [("runtime/kernel/aten", (".h", ".cpp"))],
    r"mpi\.h": [("runtime/comm", (".cpp",)), ("tests/runtime/comm", (".cpp",))],
    r"nccl\.h": [("runtime/comm", (".cpp",))],
    r"flatbuffers/|schemas/": [("runtime/plan", (".cpp",)), ("tests/runtime/plan", (".cpp",))],
    r"nlohmann/": [("src/base", (".cpp",)), ("src/frontend", (".cpp",)), ("src/profile", (".cpp",))],
    r"CLI/": [("cli", (".cpp",))],
    r"openssl/|zlib\.h": [("src/base", (".cpp",)), ("tests/src/archive", (".h", ".cpp"))],
}
# src/base/archive is a library of its own above base; the rest of base stands on the standard library.
INCLUDE = re.compile(r'^\s*#\s*include\s+[<"]([^">]+)[">]')


def may_include(path, target):
    """True if the file at `path` may include the project header `target`; both as tuples of parts."""
    top, folder = path[0], path[1] if len(path) > 2 else ""
    goal, inner = target[0], target[1] if len(target) > 2 else ""
    if top in ("cli", "tests", "examples"):
        return True
    if (goal, inner) == (top, folder) or (goal, inner) == ("src", "base"):
        return True
    if top == "src":
        if goal == "src":
            return inner in SRC.get(folder, set())
        return (goal, inner) == ("runtime", "plan") and folder in DOOR
    return goal == "runtime" and inner in RUNTIME.get(folder, set())


def violations(path):
    relative = path.relative_to(ROOT)
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        found = INCLUDE.match(line)
        if not found:
            continue
        target = found.group(1)
        where = f"{relative}:{number}"
        parts = tuple(target.split("/"))
        if parts[0] in ("src", "runtime", "cli") and not may_include(relative.parts, parts):
            yield f"{where}: {'/'.join(relative.parts[:-1])} may not include {target}"
        for pattern, homes in FOREIGN.items():
            if not re.match(pattern, target):
                continue
            if not any(str(relative).startswith(home) and relative.suffix in suffixes for home, suffixes in homes):
                yield f"{where}: {target} may appear only in {', '.join(home for home, _ in homes)}"


def main():
    problems, files = [], 0
    for top in ("src", "runtime", "cli", "tests"):
        for path in sorted((ROOT / top).rglob("*")):
            if path.suffix in (".h", ".cpp"):
                files += 1
                problems += violations(path)
    for problem in problems:
        print(problem)
    if not files:
        print("no source files found")
    print(f"{files} files, {len(problems)} violations")
    return 1 if problems or not files else 0


if __name__ == "__main__":
    sys.exit(main())
