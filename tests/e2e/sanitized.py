"""Programs built with a sanitizer (DCC_BIN_DIR=build/asan/bin): what has to be loaded first, and what counts as a report."""

import functools
import re
import subprocess

REPORT = re.compile(r"(?:Address|Leak|Thread|UndefinedBehavior)Sanitizer|: runtime error: ")


@functools.cache
def library(program):
    """Path of the sanitizer's library that the program loads; None without a sanitizer, or where it is part of the program (clang)."""
    loaded = subprocess.run(["ldd", program], capture_output=True, text=True).stdout
    found = re.search(r"=> (\S+/lib[at]san\.so\S*)", loaded)
    return found[1] if found else None


def preloading(program, path):
    """LD_PRELOAD that loads `path` into the program; a sanitizer's library comes first, as it demands."""
    return ":".join(filter(None, (library(program), path)))
