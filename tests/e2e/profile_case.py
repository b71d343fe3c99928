"""What the tests of profiles share: running `dcc`, a profile of a model, a plan with its report."""

import functools
import json
import os
import subprocess

import running

DCC = os.path.join(running.BIN, "dcc")


def dcc(*arguments, environment=None):
    return subprocess.run([DCC, *arguments], capture_output=True, text=True, timeout=180, env={**os.environ, **(environment or {})})


def launched(launcher, ranks, arguments):
    command = running.launch(launcher, ranks, arguments)
    return [DCC if word == os.path.join(running.BIN, "dcrun") else word for word in command]


@functools.cache
def profile(model, ranks=2, *options):
    """(path, document)"""
    path = running.fresh(".json")
    running.run([DCC, "profile", model, "-n", str(ranks), *options, "-o", path])
    with open(path) as file:
        return path, json.load(file)


def written(document):
    path = running.fresh(".json")
    with open(path, "w") as file:
        json.dump(document, file)
    return path


def report(model, *options):
    plan = running.fresh(".dcp")
    result = running.run([DCC, "compile", model, "--no-cache", "--json", "-o", plan, *options])
    return json.loads(result.stdout), plan, result.stderr
