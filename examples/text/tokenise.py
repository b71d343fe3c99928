"""tokenise.py OUT.bin FILE...: text as tokens of 16 bits: each byte is its own token, and 256 ends a file.

A tokeniser of your own is the same few lines: any sequence of integers below the model's `vocab_size`, written one after the other as uint16
(or uint32, int64; `dcrun --data OUT.bin:uint32`).
"""

import sys

import numpy

END = 256  # so the model needs a vocabulary of 257

tokens = []
for path in sys.argv[2:]:
    with open(path, "rb") as file:
        tokens += [numpy.frombuffer(file.read(), dtype=numpy.uint8).astype(numpy.uint16), numpy.array([END], dtype=numpy.uint16)]
if not tokens:
    sys.exit(__doc__)
everything = numpy.concatenate(tokens)
everything.tofile(sys.argv[1])
print(f"{sys.argv[1]}: {everything.size} tokens of {len(tokens) // 2} files")
