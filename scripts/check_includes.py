#!/usr/bin/env python3
"""Checks who includes whom. Exits 1 and lists every violation.

Two rules. A folder may include headers of lower layers of its tree only (the lists below; src and runtime share src/base). And what a file includes must be declared: the
target that the header belongs to is among the dependencies of the file's target in CMake, for a header among the public ones (DEPS), directly or through public ones.
Heavy or foreign headers stay where they belong. The map of the passes and what they share, drawn in src/passes/README.md, stays small enough to be seen at once.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

# From the lowest to the highest; folders of one line do not see each other.
LAYERS = {
    "src": [
        ["base"],
        ["ir"],
        ["frontend", "profile", "analysis"],
        ["cost"],
        ["layout"],
        ["sim"],
        ["schedule", "fusion"],
        ["bound", "passes"],
        ["passes/shard", "passes/recompute", "passes/offload", "passes/overlap"],
        ["passes/published", "passes/evaluation"],
        ["search", "plan"],
        ["cache"],
        ["driver"],
    ],
    "runtime": [["plan"], ["verify", "report", "device"], ["memory"], ["comm", "kernel"], ["exec", "checkpoint"], ["train", "measure", "page"]],
}
# Folders of runtime that the compiler may use, and which of its folders may.
SHARED = {"plan": {"plan", "sim", "cache", "driver"}, "verify": {"cache", "driver"}, "comm": {"driver"}, "measure": {"driver"}}
# Foreign headers: pattern -> where they may appear (prefix of the path, suffix of the file name).
FOREIGN = {
    r"(ATen|c10|torch)/": [("runtime/kernel/aten", (".h", ".cpp"))],
    r"mpi\.h": [("runtime/comm", (".cpp",)), ("tests/runtime/comm", (".cpp",))],
    r"nccl\.h": [("tests/runtime/comm", (".cpp",))],
    r"flatbuffers/|schemas/": [
        ("runtime/plan", (".cpp",)),
        ("runtime/plan/schema_fields.h", (".h",)),
        ("tests/runtime/plan", (".cpp",)),
        ("tests/runtime/verify", (".cpp",)),
    ],
    r"runtime/plan/schema_fields\.h": [("runtime/plan", (".cpp",))],
    r"nlohmann/": [("src/base", (".cpp",)), ("src/frontend", (".cpp",)), ("src/profile", (".cpp",))],
    r"CLI/": [("cli", (".cpp",))],
    r"openssl/|zlib\.h": [("src/base", (".cpp",)), ("tests/src/archive", (".h", ".cpp"))],
}
# The rooms of the map in src/passes/README.md, and how many rooms and arrows it may have.
PASSES, MOST_ROOMS, MOST_ARROWS = re.compile(r"schedule$|passes(/|$)"), 10, 12
INCLUDE = re.compile(r'^\s*#\s*include\s+[<"]([^">]+)[">]')
LIBRARY = re.compile(r"dc_library\((\w+)(.*?)\)", re.DOTALL)


def folder_of(path):
    """("src", "passes/offload") of src/passes/offload/offload.h: the deepest folder that LAYERS names."""
    top, inner = path.parts[0], path.parts[1:-1]
    known = {name for layer in LAYERS.get(top, []) for name in layer}
    while inner and "/".join(inner) not in known:
        inner = inner[:-1]
    return top, "/".join(inner)


def height(top, folder):
    for number, layer in enumerate(LAYERS[top]):
        if folder in layer:
            return number
    return None


def may_see(source, target):
    """True if a file of folder `source` may include a header of folder `target`; both as folder_of gives them."""
    (top, folder), (goal, inner) = source, target
    if top not in LAYERS or source == target or target == ("src", "base"):
        return True
    if top != goal:
        return top == "src" and folder in SHARED.get(inner, set())
    low, high = height(goal, inner), height(top, folder)
    return low is not None and high is not None and low < high


class Target:
    """A library as CMake declares it."""

    def __init__(self, name, folder, body):
        words = {"SOURCES": [], "DEPS": [], "PRIVATE_DEPS": []}
        current = None
        for word in re.sub(r"#.*", "", body).split():
            if word in words:
                current = word
            elif current:
                words[current].append(word)
        self.name, self.public, self.private = name, words["DEPS"], words["PRIVATE_DEPS"]
        self.sources = {(folder / source).as_posix() for source in words["SOURCES"]}
        self.stems = {source.rsplit(".", 1)[0] for source in self.sources}


class Targets:
    """All libraries, with the files that belong to them."""

    def __init__(self):
        self.by_name, self.by_folder = {}, {}
        for lists in sorted(path for top in LAYERS for path in (ROOT / top).rglob("CMakeLists.txt")):
            folder = lists.parent.relative_to(ROOT)
            for name, body in LIBRARY.findall(lists.read_text(encoding="utf-8")):
                target = Target(name, folder, body)
                self.by_name[name] = target
                self.by_folder.setdefault(folder.as_posix(), []).append(target)

    def of(self, path):
        """The targets that `path` may belong to: of its source, or of the source with a header's name; of any other header all of the folder."""
        text, stem = path.as_posix(), path.as_posix().rsplit(".", 1)[0]
        near = self.by_folder.get(path.parent.as_posix(), [])
        exact = [target for target in near if text in target.sources or stem in target.stems]
        return exact if exact or path.suffix == ".cpp" else near

    def visible(self, target, header):
        """Names of the targets whose headers a file of `target` may include."""
        seen, queue = {target.name}, list(target.public) + ([] if header else list(target.private))
        while queue:
            name = queue.pop()
            if name not in seen:
                seen.add(name)
                queue += self.by_name[name].public if name in self.by_name else []
        return seen


def undeclared(path, goal, targets):
    """The missing dependency of `path`'s target on the header `goal`, or none."""
    wanted, of_path = {target.name for target in targets.of(goal)}, targets.of(path)
    is_header = path.suffix == ".h"
    if not wanted or not of_path or any(wanted & targets.visible(target, is_header) for target in of_path):
        return None
    owners = " or ".join(target.name for target in of_path)
    return f"{owners} does not declare {' or '.join(sorted(wanted))} in {'DEPS' if is_header else 'DEPS or PRIVATE_DEPS'}"


def violations(path, targets):
    relative = path.relative_to(ROOT)
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        found = INCLUDE.match(line)
        if not found:
            continue
        target = found.group(1)
        where = f"{relative}:{number}"
        goal = pathlib.PurePosixPath(target)
        if goal.parts[0] in LAYERS:
            if not may_see(folder_of(relative), folder_of(goal)):
                yield f"{where}: {relative.parent} may not include {target}"
            elif relative.parts[0] in LAYERS and (missing := undeclared(relative, goal, targets)):
                yield f"{where}: {target}: {missing}"
        for pattern, homes in FOREIGN.items():
            if not re.match(pattern, target):
                continue
            if not any(str(relative).startswith(home) and relative.suffix in suffixes for home, suffixes in homes):
                yield f"{where}: {target} may appear only in {', '.join(home for home, _ in homes)}"


def arrows_of_passes():
    """(rooms, arrows) of the passes and src/schedule. An arrow is an include from one room into another; one that follows from two others is not drawn."""
    rooms, seen = set(), set()
    for path in sorted((ROOT / "src").rglob("*")):
        top, room = folder_of(path.relative_to(ROOT))
        if path.suffix not in (".h", ".cpp") or not PASSES.match(room):
            continue
        rooms.add(room)
        for target in filter(None, map(INCLUDE.match, path.read_text(encoding="utf-8").splitlines())):
            goal, other = folder_of(pathlib.PurePosixPath(target.group(1)))
            if goal == top and other != room and PASSES.match(other):
                seen.add((room, other))
    return rooms, {(a, b) for a, b in seen if not any((a, via) in seen and (via, b) in seen for via in rooms)}


def main():
    problems, files, targets = [], 0, Targets()
    for top in ("src", "runtime", "cli", "tests"):
        for path in sorted((ROOT / top).rglob("*")):
            if path.suffix in (".h", ".cpp"):
                files += 1
                problems += violations(path, targets)
    rooms, arrows = arrows_of_passes()
    if len(rooms) > MOST_ROOMS or len(arrows) > MOST_ARROWS:
        problems.append(f"the passes are {len(rooms)} rooms with {len(arrows)} arrows, more than {MOST_ROOMS} and {MOST_ARROWS}: {sorted(arrows)}")
    for problem in problems:
        print(problem)
    if not files:
        print("no source files found")
    print(f"{files} files, {len(targets.by_name)} targets, {len(problems)} violations; the passes: {len(rooms)} rooms, {len(arrows)} arrows")
    return 1 if problems or not files else 0


if __name__ == "__main__":
    sys.exit(main())
