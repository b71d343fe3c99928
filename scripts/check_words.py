#!/usr/bin/env python3
"""Words that only this project used are gone: each has a standard term. Reads every tracked text file but frozen schemas and test data.

scripts/check_words.py       lists file, line and the term to use; exit code 1 if there is any
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SKIPPED = ("schemas/baseline/", "tests/data/", "scripts/check_words.py", "scripts/same_plans.py", "CHANGELOG.md")
# What not to write, and what to write.
WORDS = (
    (r"Absence|\bStay\b|\bplace_going\b|\bComingRule\b", "OffloadCandidate, DeviceInterval, place_offloads, ReloadPolicy"),
    (r"\bB[0-3]\b", "full_overlap, with_ends, within_memory, with_contention"),
    (r"\bkSlots?\w*|StateRole::Slots|entry=\"slots\"", "hyperparameters"),
    (r"\btable_row\b(?!\()", "norm_row"),
    (r"OpKind::Permit|OpKind::Finalize|dc\.permit\b|dc\.finalize\b", "check_finite, clip_and_check"),
    (r"all_gather_into\.arrived|\bCrossing\b|\"crosses\"|\bWaitBefore\b", "wait_previous_step, CrossStepGather, spans_steps, WaitPreviousRun"),
    (r"\bBelongs\b|\bworth_it\b", "BucketPolicy, amortizes_latency"),
    (r"\bspread_number\b|\bspread_ns\b", "pseudo_random, deviation_ns"),
    (r"\bSpread\b", "AxisPlacement"),
    (r"\bKeeper\b|\bMover\b|\bPlacer\b|\bFinder\b", "the name of what it computes"),
    (r"\bOutsideMemory\b", "OffloadMemory"),
    (r"%(saving|saved|leaving|left|coming|back)\.\w", "offload., offloaded., reload., reloaded."),
    (r"\b[Bb]eside\b|\bbeside_\w+", "concurrent with; next to; in addition to"),
    (r"\b[Aa]n? (?:[\w-]+ )?\w+ of (?:its|their) own\b", "another, a separate one, its"),
    (r"\bstood\b|\bforetold\b|\bnobody\b(?!\", \")|\bwhoever\b", "waited; predicted; no rank, no reader"),
)
# Other meanings: a user's name, the cells of kernels' own tables.
ALLOWED = re.compile(r'"USER": "nobody"')


def main():
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    found = 0
    for name in files:
        if name.startswith(SKIPPED):
            continue
        try:
            lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(lines, 1):
            for pattern, instead in WORDS:
                match = re.search(pattern, line)
                if match and not ALLOWED.search(line):
                    print(f"{name}:{number}: {match[0]}: write {instead}")
                    found += 1
    print(f"{len(files)} files, {found} old words")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
