#!/usr/bin/env python
"""Trains every causal-LM family that transformers knows, shrunk, and ten each of other tasks, and compares with transformers itself.

families.py                 all families, two at a time; results of the same exporter and programs are taken from build/families
families.py NAME...         these, such as llama, bert:masked-lm, t5:seq2seq, vit:image
families.py --rotate N      the N families whose turn is today
families.py --shard 1/2     the first of two parts of all families, for two runs of one clone at once
families.py --update        all, and the table in scripts/families.md written anew; results of shards before it are taken
Exits 1 if a family trains otherwise than in PyTorch, or ends without a clear refusal. Needs built programs and build/venv.
"""

import argparse
import collections
import datetime
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
sys.path.insert(0, HERE)
PROGRAMS = os.environ.get("DCC_BIN_DIR") or os.path.join(ROOT, "build", "bin")


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="families; all if none is given")
    parser.add_argument("--rotate", type=int, metavar="N", help="the N families whose turn is today")
    parser.add_argument("--day", type=datetime.date.fromisoformat, default=datetime.date.today(), metavar="YYYY-MM-DD", help="another day for --rotate")
    parser.add_argument("--shard", type=part, metavar="K/N", help="every N-th family, from the K-th")
    parser.add_argument("--fresh", action="store_true", help="take no earlier result")
    parser.add_argument("--update", action="store_true", help="write scripts/families.md; for a run of all families")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="families at once")
    parser.add_argument("--limit", type=int, default=300, metavar="SECONDS", help="longest time for one family")
    arguments = parser.parse_args()
    if arguments.update and (arguments.names or arguments.rotate or arguments.shard):
        parser.error("--update writes the whole table; leave names, --rotate and --shard out")
    return parser, arguments


def part(text):
    """ "K/N" as (K, N)."""
    numbers = text.split("/")
    if len(numbers) != 2 or not all(n.isdigit() for n in numbers) or not 1 <= int(numbers[0]) <= int(numbers[1]):
        raise argparse.ArgumentTypeError("K/N, such as 1/2 and 2/2")
    return int(numbers[0]), int(numbers[1])


def chosen(parser, arguments):
    from family import catalog

    if arguments.rotate:
        print(f"families of {arguments.day}: ", end="")
        picked = catalog.of_the_day(arguments.rotate, arguments.day.toordinal())
        print(" ".join(f.key for f in picked), flush=True)
        return picked
    known = {f.key: f for f in catalog.families()}
    unknown = [n for n in arguments.names if n not in known]
    if unknown:
        parser.error(f"unknown family {unknown[0]}; there are {' '.join(known)}")
    picked = [known[n] for n in arguments.names] or list(known.values())
    return picked[arguments.shard[0] - 1 :: arguments.shard[1]] if arguments.shard else picked


def main():
    parser, arguments = parse()
    os.environ["OMP_NUM_THREADS"] = "1"
    import transformers
    import transformers.models.auto.modeling_auto  # noqa: F401 (loads it before the workers fork)

    from family import page, pool, preload

    preload.imports()
    families = chosen(parser, arguments)
    digest = pool.digest_of(
        os.path.join(HERE, "dcc_export"),
        os.path.join(HERE, "family"),
        os.path.realpath(PROGRAMS) + "/dcc",
        os.path.realpath(PROGRAMS) + "/dcrun",
        *preload.plugins(os.path.realpath(PROGRAMS)),
    )
    store = pool.Store(os.path.join(ROOT, "build", "families"), digest)
    results = {} if arguments.fresh else {f: store.read(f) for f in families}
    started = time.monotonic()

    def report(family, result):
        results[family] = result
        print(f"{family.key:28s} {result['seconds']:6.1f} s  {result['status']}: {result['detail']}", flush=True)

    pool.run_all([f for f in families if not results.get(f)], store, PROGRAMS, arguments.jobs, arguments.limit, report)
    counts = collections.Counter(results[f]["status"] for f in families)
    print(page.summary(counts) + f"; {time.monotonic() - started:.0f} s")
    if arguments.update:
        page.write(os.path.join(HERE, "families.md"), families, results, counts)
    return page.verdict(counts)


if __name__ == "__main__":
    sys.exit(main())
