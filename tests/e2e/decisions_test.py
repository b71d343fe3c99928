"""dcc inspect --as=decisions: what a plan decided, next to what the plan's own instructions, slices and state say.

The plan is read here from --as=json by other rules than the report's: shards and slices by their state entries, phases by the first backward kernel.
"""

import collections
import json
import os
import re
import unittest

import running
from compile_test import LLAMA_70B, dcc, report

H100 = os.path.join(running.ROOT, "examples", "profiles", "h100x32.json")
HELD = ("whole", "carried", "kept", "here")


def decided(plan):
    return json.loads(dcc("inspect", plan, "--as=decisions-json").stdout)


def rounded(slice):
    return -(-slice["bytes"] // 64) * 64


def amount(row):
    return row["holds_bytes"] if row["decided"] in HELD else row["frees_bytes"]


class Plan:
    def __init__(self, path):
        self.plan = running.inspect(path)
        self.slices, self.tensors, self.state = self.plan["slices"], self.plan["tensors"], self.plan["state"]
        self.runs = [(run["program"], run["repeat"]) for run in self.plan["step"]]

    def slice_of(self, tensor):
        return self.tensors[tensor]["slice"]

    def instructions(self, program):
        return self.plan["programs"][program]["instructions"]

    def boundary(self, program):
        """Index of the first kernel of the backward phase."""
        rows = self.instructions(program)
        return next((i for i, row in enumerate(rows) if row["kind"] == "kernel" and row["phase"] == "backward"), len(rows))

    def shards(self):
        """Parameters by the slice that holds a shard, or all, of them, or a copy of that in another space."""
        shards = {self.slice_of(one["tensor"]): one["parameter"] for one in self.state if one["role"] in ("shard", "parameter")}
        for program, _ in self.runs:
            for row in self.instructions(program):
                if row["kind"] == "copy" and self.slice_of(row["src"]) in shards:
                    shards[self.slice_of(row["dst"])] = shards[self.slice_of(row["src"])]
        return shards

    def gathers(self):
        """Gathers into memory of one program, by (program, parameter)."""
        shards, counts = self.shards(), collections.Counter()
        for program, _ in self.runs:
            for row in self.instructions(program):
                if row["kind"] != "collective" or not row.get("buffers") or "gather" not in json.dumps(row.get("collective", row.get("op", ""))):
                    continue
                for buffer in row["buffers"]:
                    if self.slices[self.slice_of(buffer["output"])]["program"] == program:
                        counts[program, shards[self.slice_of(buffer["input"])]] += 1
        return counts

    def touched(self, program):
        """Indices at which each slice is read or written."""
        at = collections.defaultdict(list)
        for i, row in enumerate(self.instructions(program)):
            for slice in {self.slice_of(tensor) for tensor in row["reads"] + row["writes"] if tensor >= 0}:
                at[slice].append(i)
        return at

    def kept_bytes(self, program):
        """Of activations on the device that the forward phase made and the backward phase reads, and how many."""
        boundary, sizes = self.boundary(program), []
        for slice, at in self.touched(program).items():
            one = self.slices[slice]
            mine = one["program"] == program and one["space"] == "device" and one["kind"] == "activations"
            if mine and at[0] < boundary <= at[-1]:
                sizes.append(rounded(one))
        return sum(sizes), len(sizes)

    def state_bytes(self, roles, space):
        slices = {self.slice_of(one["tensor"]) for one in self.state if one["role"] in roles and one["range_of"] < 0}
        return sum(rounded(self.slices[slice]) for slice in slices if self.slices[slice]["space"] == space)


FRAGMENTS = ("master", "moment1", "moment2", "momentum")


class Decisions(unittest.TestCase):
    def check(self, path):
        """Returns the rows."""
        plan, said = Plan(path), decided(path)
        self.assertEqual(said["schema"], "dcc.decisions/1")
        rows = said["decisions"]
        self.check_parameters(plan, rows)
        for program, _ in plan.runs:
            kept = [row for row in rows if (row["of"], row["decided"], row.get("program")) == ("activation", "kept", program)]
            self.assertEqual((sum(map(amount, kept)), len(kept)), plan.kept_bytes(program))
        for space in ("device", "host", "disk"):
            here = [row for row in rows if row["of"] == "state" and row["space"] == space]
            self.assertEqual(sum(map(amount, here)), plan.state_bytes(FRAGMENTS, space))
            self.assertTrue(all((row["decided"] == "here") == (space == "device") for row in here))
        self.check_prices(plan, said)
        return rows

    def check_parameters(self, plan, rows):
        counts = plan.gathers()
        of_programs = {(row["program"], row["name"]): row for row in rows if row["of"] == "parameter" and "program" in row}
        names = [one["fqn"] for one in plan.plan["parameters"]]
        self.assertEqual(set(of_programs), {(program, names[parameter]) for program, parameter in counts})
        for (program, parameter), count in counts.items():
            row = of_programs[program, names[parameter]]
            self.assertEqual(row["times"], count)
            if count > 1:
                self.assertEqual(row["decided"], "gathered per use")
                self.assertGreaterEqual(row["costs_ns"], 0)
        by_role = lambda role: sorted(names[one["parameter"]] for one in plan.state if one["role"] == role and one["range_of"] < 0)
        resident = [row for row in rows if row["of"] == "parameter" and "program" not in row]
        named = lambda *what: sorted(row["name"] for row in resident if row["decided"] in what and row["space"] == "device")
        self.assertEqual(named("carried"), [one for one in by_role("carried") if one not in by_role("parameter")])
        whole_here = [
            names[one["parameter"]]
            for one in plan.state
            if one["role"] == "parameter" and one["range_of"] < 0 and plan.slices[plan.slice_of(one["tensor"])]["space"] == "device"
        ]
        self.assertEqual(named("whole"), sorted(whole_here))
        told = {row["name"] for row in rows if row["of"] == "parameter"}
        self.assertEqual([one for one in names if not any(name == one or name.startswith(one) for name in told)], [])

    def check_prices(self, plan, said):
        """Of state that is always on the device: bytes times all prices, each as often as its program runs."""
        repeats = dict(plan.runs)
        total = sum(row["ns_per_gib"] * repeats[row["program"]] for row in said["prices"])
        for row in said["prices"]:
            self.assertLess(row["instruction"], len(plan.instructions(row["program"])))
            self.assertGreater(row["ns_per_gib"], 0)
        if said["weights"] is None:
            self.assertEqual(said["prices"], [])
        else:
            self.assertEqual(said["weights"]["instants"], len(said["prices"]))
        for row in said["decisions"]:
            if said["weights"] is None:
                self.assertIsNone(row["price_ns"])
            elif row["of"] == "state" and row["decided"] == "here":
                self.assertAlmostEqual(row["price_ns"], row["holds_bytes"] * total / 2**30, delta=2 + row["price_ns"] / 1000)
            elif row["decided"] in ("kept", "made again"):
                mine = [price for price in said["prices"] if price["program"] == row["program"]]
                between = sum(price["ns_per_gib"] for price in mine if row["from"] < price["instruction"] < row["to"])
                self.assertAlmostEqual(row["price_ns"], row["runs"] * amount(row) * between / 2**30, delta=2 + row["price_ns"] / 1000)

    def made(self, model, *options):
        _, plan = report(model, *options)
        return plan, self.check(plan)

    def counted(self, rows):
        return collections.Counter((row["of"], row["decided"]) for row in rows)

    def test_every_stage_and_accumulation(self):
        model = running.archive("tiny-llama")
        for zero in ("0", "2", "3"):
            for accumulation in ("1", "4"):
                with self.subTest(zero=zero, accumulation=accumulation):
                    _, rows = self.made(model, "--world", "2", "--zero", zero, "--grad-accum", accumulation)
                    seen = self.counted(rows)
                    self.assertEqual(("parameter", "gathered per use") in seen, zero == "3")
                    self.assertEqual(("parameter", "whole") in seen, zero != "3")
                    self.assertNotIn(("activation", "made again"), seen)

    def test_what_passes_do_is_what_is_said(self):
        """As many kernels made again, and parameters kept, as the passes' remarks count."""
        model = running.archive("tiny-llama")
        plan, rows = self.made(model, "--world", "2", "--zero", "3", "--recompute", "full")
        (remark,) = (one for one in running.inspect(plan)["remarks"] if one["code"] == "recomputed")
        again = [row for row in rows if row["decided"] == "made again"]
        # The pass calls what it makes "recomputed.NAME"; a kernel may have several results.
        read = Plan(plan)
        kernels = [row for row in read.instructions(0) if row["kind"] == "kernel" and self.recomputed(read, row)]
        self.assertEqual(len(kernels), remark["numbers"]["kernels"])
        # What a kernel makes again but nothing reads is no row: a fused kernel makes all that it made in the forward phase.
        is_read = {read.slice_of(tensor) for row in read.instructions(0) for tensor in row["reads"]}
        self.assertEqual(len(again), sum(self.recomputed(read, row, is_read) for row in kernels))
        self.assertGreater(len(again), 30)
        kept = "normalize-graph,shard-parameters=3,insert-collectives,add-update,schedule,keep-resident,layout-arenas"
        plan, rows = self.made(model, "--world", "2", "--passes", kept)
        held = self.counted(rows)[("parameter", "kept")]
        self.assertGreater(held, 0)
        self.assertNotIn(("parameter", "gathered per use"), {key for key in self.counted(row for row in rows if row["times"] > 1)})

    def recomputed(self, read, row, among=None):
        """Results of the kernel that the pass recompute made again."""
        names = [read.tensors[output]["name"] for output in row["outputs"] if output >= 0 and (among is None or read.slice_of(output) in among)]
        return sum(name.startswith("recomputed.") for name in names)

    def test_what_is_away(self):
        model = running.archive("tiny-llama")
        _, need = report(model, "--world", "2", "--zero", "3")
        budget = running.inspect(need)["arena_bytes"][0] * 7 // 10
        plan, rows = self.made(model, "--world", "2", "--chain", "deepcompile-offload-optimizer", "--memory", f"{budget}B")
        away = [row for row in rows if row["decided"] == "away" and row["of"] == "state"]
        self.assertGreater(len(away), 0)
        read = Plan(plan)
        copies = collections.Counter()
        for program, repeat in read.runs:
            for row in read.instructions(program):
                if row["kind"] == "copy":
                    copies[read.slice_of(row["src"])] += repeat
                    copies[read.slice_of(row["dst"])] += repeat
        slices = {one["name"]: read.slice_of(one["tensor"]) for one in read.state}
        for row in away:
            self.assertEqual((row["space"], row["times"]), ("host", copies[slices[row["name"]]]))
            self.assertGreater(row["costs_ns"], 0)
        plan, rows = self.made(model, "--world", "2", "--chain", "zero-offload")
        self.assertEqual({row["decided"] for row in rows if row["of"] == "state"}, {"updated there"})

    def test_other_chains(self):
        """Parameters away, another stream and communicator, hosts, activations that are kept for one reader and made again for a later one."""
        model = os.path.join(running.ROOT, "tests", "data", "llama_8b_cuda.pt2")
        for options in (
            ("--world", "8", "--chain", "deepcompile-offload-parameters", "--offload-space", "host"),
            ("--world", "8", "--chain", "zero3-trace"),
            ("--world", "16", "--chain", "hsdp", "--ranks-per-host", "8"),
            ("--world", "3", "--zero", "3", "--grad-accum", "2", "--recompute", "full", "--providers", "native"),
        ):
            with self.subTest(options):
                self.made(model, *options, "--profile", H100)

    def test_prices_of_a_tight_budget(self):
        model = running.archive("tiny-llama")
        _, loose = report(model, "--world", "2", "--grad-accum", "2")
        self.check(loose)
        self.assertEqual(decided(loose)["prices"], [])
        self.assertIn("no byte has a price", dcc("inspect", loose, "--as=decisions").stdout)
        need = running.inspect(report(model, "--world", "2", "--grad-accum", "2", "--zero", "3")[1])["arena_bytes"][0]
        tight, rows = self.made(model, "--world", "2", "--grad-accum", "2", "--memory", f"{need * 8 // 10}B")
        said = decided(tight)
        self.assertGreater(len(said["prices"]), 0)
        self.assertGreater(sum(row["price_ns"] for row in rows), 0)
        table = dcc("inspect", tight, "--as=decisions").stdout
        self.assertRegex(table, r"a GiB more is worth \d.* at \d+ instants?; time of compute counts \d")
        self.assertRegex(table, r"\nof +decided +count +bytes +time +price\n")
        self.assertNotIn("byte-price", dcc("inspect", tight).stdout)

    def test_of_70_billion_parameters(self):
        """All of them are said, and prices are a small part of the plan."""
        options = ("--world", "32", "--profile", H100, "--memory", "60GiB", "--search-effort", "12")
        plan, rows = self.made(LLAMA_70B, *options)
        seen = self.counted(rows)
        self.assertGreater(seen["activation", "kept"] + seen["activation", "made again"], 1000)
        self.assertGreater(len(decided(plan)["prices"]), 0)
        jointly = [one["numbers"]["parameters"] for one in running.inspect(plan)["remarks"] if one["code"] == "kept-jointly"]
        self.assertEqual(jointly, [seen["parameter", "kept"]])
        remarks = [one for one in running.inspect(plan)["remarks"] if one["code"] == "byte-price"]
        self.assertLess(len(json.dumps(remarks)), os.path.getsize(plan) * 0.03)
        table = dcc("inspect", plan, "--as=decisions").stdout
        self.assertLess(table.count("\n"), 50)
        # Largest first, in the second table.
        units = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
        shown = [float(value) * units[unit] for value, unit in re.findall(r"^.{36} *\d+ +([\d.]+) ([KMG]?i?B) ", table.split("which\n")[1], re.M)]
        self.assertGreater(len(shown), 10)
        self.assertEqual(shown, sorted(shown, reverse=True))


if __name__ == "__main__":
    unittest.main()
