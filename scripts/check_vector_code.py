"""Whether functions that are compiled per vector width are vector code to their end.

check_vector_code.py OBJECT...

A function of math.h that is called from there, not inlined, is code for the oldest CPU, in which each fused multiply-add is a call of libm: up to a hundred
times as slow. Prints such calls and exits 1. Needs objdump.
"""

import re
import subprocess
import sys

CLONE = re.compile(r"^[0-9a-f]+ <(\S+\.arch_x86_64_v\d)(?:\.\w+)*>:$")
FUNCTION = re.compile(r"^[0-9a-f]+ <\S+>:$")
SLOW = re.compile(r"R_X86_64_(?:PLT32|PC32|GOTPCREL\w*)\s+(fmaf?|_ZN\w*4math\w+Ef\w*)\b")


def slow_calls(path):
    """{(clone, what it calls)}"""
    code = subprocess.run(["objdump", "-dr", "--no-show-raw-insn", path], capture_output=True, text=True, check=True).stdout
    clone, found = None, set()
    for line in code.splitlines():
        if FUNCTION.match(line):
            match = CLONE.match(line)
            clone = match and match[1]
        elif clone and (call := SLOW.search(line)):
            found.add((clone, call[1]))
    return found, code.count(".arch_x86_64_v4>:")


def main(paths):
    clones, slow = 0, set()
    for path in paths:
        found, count = slow_calls(path)
        slow |= found
        clones += count
    for clone, called in sorted(slow):
        print(subprocess.run(["c++filt", f"{clone}", f"{called}"], capture_output=True, text=True, check=True).stdout.replace("\n", "\n    calls ", 1).rstrip())
    print(f"{len(slow)} slow calls in {clones} functions for the widest vectors")
    return 1 if slow or not clones else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
