#!/usr/bin/env python3
"""Checks that no Python modules of this repository import each other in a circle, counting imports inside functions too. Exits 1 and shows the circles."""

import ast
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


class Modules:
    """The tracked Python files, found as Python would: next to the importing file, in its package, or from scripts/."""

    def __init__(self):
        listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
        self.files = {pathlib.PurePosixPath(name) for name in listed.split()}

    def at(self, folder, dotted):
        """The file of module `dotted` below `folder`, or None."""
        path = folder.joinpath(*dotted.split(".")) if dotted else folder
        for file in (path.with_name(path.name + ".py"), path / "__init__.py"):
            if file in self.files:
                return file
        return None

    def imported(self, file):
        """The files that `file` imports."""
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield self.find(file, alias.name)
            elif isinstance(node, ast.ImportFrom):
                folder = file.parents[node.level - 1] if node.level else None
                for alias in node.names:
                    module = ".".join(filter(None, (node.module, alias.name)))
                    yield self.find(file, module, folder) or (self.find(file, node.module, folder) if node.module else None)

    def find(self, file, dotted, folder=None):
        places = [folder] if folder else [file.parent, pathlib.PurePosixPath("scripts")]
        return next((found for found in (self.at(place, dotted) for place in places) if found), None)


def circles(graph):
    """Every circle that a walk along the imports closes, as a list of files."""
    done, path = set(), []

    def walk(file):
        path.append(file)
        for target in sorted(graph[file]):
            if target in path:
                yield [*path[path.index(target) :], target]
            elif target not in done:
                yield from walk(target)
        done.add(path.pop())

    for file in sorted(graph):
        if file not in done:
            yield from walk(file)


def main():
    modules = Modules()
    graph = {file: {target for target in modules.imported(file) if target and target != file} for file in modules.files}
    found = 0
    for circle in circles(graph):
        print(" -> ".join(map(str, circle)))
        found += 1
    print(f"{len(graph)} modules, {sum(map(len, graph.values()))} imports, {found} circles")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
