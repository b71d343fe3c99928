"""progress.py METRICS: prints the first and the last loss of a run; exits 1 if the loss did not fall by a quarter."""

import json
import math
import sys

with open(sys.argv[1]) as file:
    header, *steps = map(json.loads, file)
losses = [step["loss"] for step in steps]
print(f"{len(steps)} steps on {header['world']} ranks ({header['launcher']}, communicator {header['communicator']})")
print(f"first loss {losses[0]:.4f} (guessing: {math.log(256):.4f}), last loss {losses[-1]:.4f}")
sys.exit(0 if losses[-1] < 0.75 * losses[0] else 1)
