"""tokens.py FILE COUNT: a text to learn, as 16-bit token ids: counting, with a stride that changes every 64 tokens."""

import sys

import numpy

count = int(sys.argv[2])
generator = numpy.random.default_rng(0)
strides = generator.choice([1, 3, 5, 7], size=count // 64 + 1).repeat(64)[:count]
(strides.cumsum() % 256).astype(numpy.uint16).tofile(sys.argv[1])
