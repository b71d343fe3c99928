"""The cache of plans as a user sees it: what hits, what misses, entries that are damaged or planted, ls and gc.

build/venv/bin/python tests/e2e/compile_cache_test.py
"""

import hashlib
import os
import resource
import subprocess
import unittest
import zipfile

import running
from compile_test import LLAMA_70B, compiled, content, dcc, folder, report


class Cache(unittest.TestCase):
    def setUp(self):
        self.cache = folder()
        self.model = running.archive("mlp")

    def compile(self, model=None, *options):
        said, plan = report(model or self.model, "--world", "2", *options, cache=self.cache)
        return said["cache"], content(plan)

    def entries(self):
        place = os.path.join(self.cache, "plans")
        return [os.path.join(place, name) for name in sorted(os.listdir(place))] if os.path.isdir(place) else []

    def test_miss_then_hit_with_the_same_bytes(self):
        word, first = self.compile()
        self.assertEqual(word, "miss")
        word, second = self.compile()
        self.assertEqual((word, second), ("hit", first))
        plan = running.fresh(".dcp")
        said = dcc("compile", self.model, "--world", "2", "-o", plan, cache=self.cache)
        self.assertIn("cache hit", said.stderr)
        self.assertEqual(content(plan), first)

    def test_no_cache_neither_reads_nor_writes(self):
        said, plan = report(self.model, "--world", "2", "--no-cache", cache=self.cache)
        self.assertEqual((said["cache"], self.entries()), ("off", []))
        self.compile()
        before = os.stat(self.entries()[0]).st_mtime_ns
        said, again = report(self.model, "--world", "2", "--no-cache", cache=self.cache)
        self.assertEqual((said["cache"], os.stat(self.entries()[0]).st_mtime_ns), ("off", before))
        self.assertEqual(content(plan), content(again))

    def test_a_copy_under_another_name_hits(self):
        _, first = self.compile()
        copy = running.fresh("-renamed.pt2")
        with zipfile.ZipFile(self.model) as source, zipfile.ZipFile(copy, "w", zipfile.ZIP_DEFLATED) as target:
            for name in reversed(source.namelist()):  # other order, other compression, other time
                target.writestr(zipfile.ZipInfo(name, (2001, 2, 3, 4, 5, 6)), source.read(name), zipfile.ZIP_DEFLATED)
        self.assertEqual(self.compile(copy), ("hit", first))

    def test_another_export_of_the_same_model_hits(self):
        _, first = self.compile()
        again = running.archive("mlp", "--seed", "5")  # other weights
        self.assertNotEqual(content(again), content(self.model))
        self.assertEqual(self.compile(again), ("hit", first))

    def test_weights_do_not_count_but_the_graph_does(self):
        self.compile()
        word, _ = self.compile(running.archive("tiny-llama"))
        self.assertEqual(word, "miss")

    def test_bad_entries_are_set_aside(self):
        _, first = self.compile()
        other = compiled(running.archive("tiny-llama"), "--world", "2")
        _, bare = self.compile(None, "--grad-accum", "2")
        mine = [e for e in self.entries() if content(e).endswith(first)][0]
        neighbour = [e for e in self.entries() if content(e).endswith(bare)][0]
        good = content(mine)
        damages = {
            "empty": b"",
            "short": good[:-1],
            "flipped": good[:500] + bytes([good[500] ^ 4]) + good[501:],
            "another model's plan": other,
            "the bare plan": first,
            "another entry": content(neighbour),
            "another plan behind this line": good[: len(good) - len(first)] + other,
        }
        for name, damage in damages.items():
            with self.subTest(name):
                with open(mine, "wb") as file:
                    file.write(damage)
                plan = running.fresh(".dcp")
                said = dcc("compile", self.model, "--world", "2", "-o", plan, cache=self.cache)
                self.assertRegex(said.stderr, "warning: cache entry .* moved to .*quarantine")
                self.assertIn("cache miss", said.stderr)
                self.assertEqual(content(plan), first)
                self.assertEqual(content(mine), good)
                self.assertTrue(os.listdir(os.path.join(self.cache, "quarantine")))
        self.assertEqual(self.compile(), ("hit", first))

    def test_a_planted_plan_of_another_request_is_set_aside(self):
        """The line in front of it is right: only that it is compared with the request shows that it is not the answer."""
        _, first = self.compile()
        mine = self.entries()[0]
        key = content(mine)[:64]
        for options in (("--grad-accum", "2"), ("--config", running.train_config(optimizer={"kind": "adamw", "lr": 0.5}))):
            other = compiled(self.model, "--world", "2", *options)
            with open(mine, "wb") as file:
                file.write(key + b" " + hashlib.sha256(key + b"\n" + other[:48]).hexdigest().encode() + b"\n" + other)
            plan = running.fresh(".dcp")
            said = dcc("compile", self.model, "--world", "2", "-o", plan, cache=self.cache)
            self.assertRegex(said.stderr, "warning: cache entry .* of another .* moved to .*quarantine")
            self.assertEqual(content(plan), first)
        self.assertEqual(len(os.listdir(os.path.join(self.cache, "quarantine"))), 2)

    def test_a_cache_that_cannot_be_written_only_warns(self):
        place = running.fresh()
        open(place, "w").close()  # a file where the folder should be
        plan = running.fresh(".dcp")
        said = dcc("compile", self.model, "--world", "2", "-o", plan, cache=place)
        self.assertIn("not cached", said.stderr)
        self.assertTrue(content(plan))

    def test_ls_and_gc(self):
        self.assertEqual(dcc("cache", "ls", cache=self.cache).stdout, "")
        self.compile()
        self.compile(None, "--zero", "0")
        lines = dcc("cache", "ls", cache=self.cache).stdout.splitlines()
        self.assertEqual(len(lines), 2)
        for line, options in zip(lines, ("chain=zero0", "chain=auto")):  # used last, first
            self.assertRegex(line, r"^\d{4}-\d\d-\d\d \d\d:\d\d UTC +[0-9.]+ KiB  [0-9a-f]{12}  \w+ of \d+ parameters \([0-9a-f]{12}\), world=2 .*" + options)
        self.assertEqual(dcc("cache", "gc", cache=self.cache).stdout, "removed 0 plans\n")
        self.compile()  # used last
        size = max(os.path.getsize(entry) for entry in self.entries())
        self.assertEqual(dcc("cache", "gc", "--keep", str(size), cache=self.cache).stdout, "removed 1 plan\n")
        self.assertEqual(self.compile()[0], "hit")
        self.assertEqual(dcc("cache", "gc", "--keep", "0", cache=self.cache).stdout, "removed 1 plan\n")
        self.assertEqual(self.compile()[0], "miss")
        self.assertEqual(dcc("cache", "gc", "--keep", "much", cache=self.cache, check=False).returncode, 64)

    def test_ls_and_gc_without_a_folder(self):
        file = running.fresh()
        open(file, "w").close()
        for command in ("ls", "gc"):
            self.assertEqual(dcc("cache", command, cache=running.fresh()).stdout, "" if command == "ls" else "removed 0 plans\n")  # not there yet
            said = dcc("cache", command, cache=file, check=False)
            self.assertEqual(said.returncode, 74)
            self.assertRegex(said.stderr, f"DC2902.*{file}: Not a directory")
            homeless = {name: value for name, value in os.environ.items() if name not in ("HOME", "XDG_CACHE_HOME", "DCC_CACHE_DIR")}
            said = subprocess.run([os.path.join(running.BIN, "dcc"), "cache", command], env=homeless, capture_output=True, text=True)
            self.assertEqual(said.returncode, 64)
            self.assertIn("DC2819", said.stderr)

    def test_seventy_billion_parameters_hit_at_once(self):
        options = ("--world", "32", "--zero", "3")
        first, plan = report(LLAMA_70B, *options, cache=self.cache)
        self.assertEqual(first["cache"], "miss")
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        said, again = report(LLAMA_70B, *options, cache=self.cache)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.assertEqual(said["cache"], "hit")
        self.assertEqual(content(again), content(plan))
        # Processor time, which does not depend on the neighbours; scripts/benchmark/compile_time.py times the clock.
        self.assertLess(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1.0)  # most of it reads the model, which the hit is compared with


if __name__ == "__main__":
    unittest.main()
