"""`dcc compile --chain auto`: never worse than a named chain, within the budget, deterministic; a cut search is not cached."""

import itertools
import os
import re
import shutil
import unittest

import running
import bits_case
import cases
from rotation import of_today
from compile_test import compiled, dcc, folder, report

LITTLE = ("--search-effort", "24")  # a budget that is refused takes a dozen searches
# Those that fuse otherwise have other kernels; auto does not try them.
NAMED = [chain for chain in (line.split()[1] for line in dcc("passes").stdout.splitlines() if line.startswith("--chain")) if chain not in cases.FUSION_CHAINS]


def predicted(said):
    return said["prediction"]["step_ns"]


class Auto(unittest.TestCase):
    def test_never_worse_than_a_named_chain_and_within_the_budget(self):
        cases = (("tiny-llama", 2, 1, None), ("tiny-llama", 4, 4, None), ("tiny-llama", 4, 4, 2), ("small-llama", 2, 1, None))
        for model, world, accumulation, per_host in of_today(cases, 2):
            archive = running.archive(model)
            options = ("--world", str(world), "--grad-accum", str(accumulation), *(("--ranks-per-host", str(per_host)) if per_host else ()))
            jit, _ = report(archive, *options, "--chain", "zero3")
            need = jit["memory"]["arena_bytes"]["device"]
            # hsdp has to know which ranks share a host.
            named = {chain: report(archive, *options, "--chain", chain)[0] for chain in NAMED if chain != "hsdp" or per_host}
            for budget in (need, need * 5 // 4, need * 2):
                with self.subTest(model, world=world, accumulation=accumulation, per_host=per_host, budget=budget):
                    auto, _ = report(archive, *options, "--memory", str(budget))
                    self.assertLessEqual(auto["memory"]["arena_bytes"]["device"], budget)
                    for chain, said in named.items():
                        if said["memory"]["arena_bytes"]["device"] <= budget:
                            self.assertLessEqual(predicted(auto), predicted(said) * 1.001, chain)

    def test_never_worse_without_a_budget_than_keeping_all(self):
        for model, world, accumulation in (("tiny-llama-tied", 3, 3), ("tiny-gpt2", 3, 3)):
            with self.subTest(model):
                options = ("--world", str(world), "--grad-accum", str(accumulation))
                auto, _ = report(running.archive(model), *options)
                off, _ = report(running.archive(model), *options, "--recompute", "off")
                self.assertLessEqual(predicted(auto), predicted(off) * 1.001)

    def test_it_offloads_if_it_may(self):
        archive = running.archive("tiny-llama")
        jit, _ = report(archive, "--world", "2", "--chain", "zero3")
        options = ("--world", "2", "--memory", f"{jit['memory']['arena_bytes']['device'] // 2}B")
        self.assertEqual(dcc("compile", archive, *options, *LITTLE, "--no-cache", "-o", running.fresh(), check=False).returncode, 80)
        for space in ("host", "disk"):
            auto, _ = report(archive, *options, "--offload-space", space)
            self.assertGreater(auto["memory"]["arena_bytes"][space], 0)
            self.assertLessEqual(auto["memory"]["arena_bytes"]["device"], jit["memory"]["arena_bytes"]["device"] // 2)

    def test_no_named_chain_offloads_for_it_unasked(self):
        archive = running.archive("tiny-llama")
        jit, _ = report(archive, "--world", "2", "--chain", "zero3")
        options = ("--world", "2", "--memory", f"{jit['memory']['arena_bytes']['device'] * 7 // 10}B")
        named, _ = report(archive, *options, "--chain", "deepcompile-offload-optimizer")
        self.assertGreater(named["memory"]["arena_bytes"]["host"], 0)
        self.assertEqual(dcc("compile", archive, *options, *LITTLE, "--no-cache", "-o", running.fresh(), check=False).returncode, 80)

    def test_recompute_prefetch_and_residency_are_decided_together(self):
        """Mixtral-8x7B on 32 H100: recomputing only as much as the budget asks leaves no memory to what hides communication. At 28.7 GiB all that is fast
        needs a tenth too much at first."""
        archive = os.path.join(running.ROOT, "tests", "data", "mixtral_dcc_8x7b_cuda.pt2")
        options = ("--world", "32", "--profile", os.path.join(running.ROOT, "examples", "profiles", "h100x32.json"))
        before = None
        for gib in (28.7, 90):
            with self.subTest(gib=gib):
                auto, _ = report(archive, *options, "--memory", f"{gib}GiB")
                full, _ = report(archive, *options, "--memory", f"{gib}GiB", "--recompute", "full")
                self.assertLessEqual(predicted(auto), predicted(full) * 1.001)
                self.assertLessEqual(predicted(auto), (before or predicted(auto)) * 1.005)
                before = predicted(auto)
        # At 70.8 GiB parameters alone are kept, all activations made again; with four micro-batches by the published rules.
        for gib, more, recompute in ((129.57, (), "off"), (70.8, (), "full"), (63.44, ("--grad-accum", "4"), "full")):
            room = ("--memory", f"{gib}GiB", *more, "--reduction-order", "per-micro-batch")
            auto, _ = report(archive, *options, *room)
            other, _ = report(archive, *options, *room, "--recompute", recompute)
            self.assertLessEqual(predicted(auto), predicted(other) * 1.001, gib)
        much, _ = report(archive, *options, "--memory", "133.8GiB")
        unlimited, _ = report(archive, *options)
        self.assertLessEqual(predicted(unlimited), predicted(much) * 1.005)

    def test_parameters_are_whole_through_all_micro_batches(self):
        """Mixtral-8x7B with four micro-batches: exchanges decide within one micro-batch, and what is whole through all of them is decided next to them."""
        archive = os.path.join(running.ROOT, "tests", "data", "mixtral_dcc_8x7b_cuda.pt2")
        profile = os.path.join(running.ROOT, "examples", "profiles", "h100x32.json")
        options = ("--world", "32", "--profile", profile, "--grad-accum", "4", "--reduction-order", "per-micro-batch", "--memory", "63.44GiB")
        auto, _ = report(archive, *options)
        by_hand, _ = report(
            archive,
            *options,
            "--passes",
            "normalize-graph,fuse-loss,fuse-output-layer,fuse-products,fuse-elementwise,shard-parameters=3,insert-collectives,add-update,schedule,recompute=0,"
            "keep-resident=33GB,fuse-gathers,bucket-reductions,prefetch-gathers,overlap-reductions=1GB,keep-jointly=400,overlap-update,layout-arenas",
        )
        self.assertLessEqual(predicted(auto), predicted(by_hand))

    def test_recompute_by_hand(self):
        """The pass's argument: 0 is what --recompute full does, and less memory is more time."""
        archive = running.archive("tiny-llama")
        chain = "normalize-graph,shard-parameters=3,insert-collectives,add-update,schedule,recompute{},layout-arenas"

        def made(argument, *options):
            said, _ = report(archive, "--world", "2", "--passes", chain.format(argument), *options)
            return predicted(said), said["memory"]["arena_bytes"]["device"]

        off, full = made(""), made("", "--recompute", "full")
        self.assertEqual(made("=0"), full)
        self.assertLess(full[1], off[1])
        middle = (off[1] + full[1]) // 2
        some = made(f"={middle}")
        self.assertLessEqual(some[1], middle)
        self.assertLess(off[0], some[0])
        self.assertLessEqual(some[0], full[0])

    def test_passes_of_a_plan_make_it_without_the_option(self):
        """So what starts from a plan that was compiled with --recompute starts from its decisions."""
        archive = running.archive("tiny-llama")
        need = report(archive, "--world", "2", "--zero", "3")[0]["memory"]["arena_bytes"]["device"]
        for chain, way in of_today(itertools.product(("auto", "zero3", "deepcompile-offload-optimizer"), ("off", "full")), 3):
            with self.subTest(chain=chain, way=way):
                room = ("--world", "2", "--memory", str(need * 11 // 10), "--offload-space", "host")
                said, plan = report(archive, *room, "--chain", chain, "--recompute", way)
                again, _ = report(archive, *room, "--passes", running.inspect(plan)["passes"])
                self.assertEqual(predicted(again), predicted(said))

    def test_the_best_of_a_large_model_that_offloads_is_tried_with_all_kept(self):
        model = os.path.join(running.ROOT, "tests", "data", "llama_8b_cuda.pt2")
        profile = os.path.join(running.ROOT, "examples", "profiles", "h200x8.json")
        room = (model, "--profile", profile, "--world", "8", "--grad-accum", "4", "--offload-space", "host", "--memory", "6466424985")
        auto, off = (predicted(report(*room, *options)[0]) for options in ((), ("--recompute", "off")))
        self.assertLessEqual(auto, off * 1.001)

    def test_a_chain_that_was_planned_for_less_is_tried_with_all_of_the_budget(self):
        """A tiny budget, of which only the smallest plan is a start."""
        model = running.archive("tiny-llama", "--dynamic", "batch")
        profile = os.path.join(running.ROOT, "examples", "profiles", "gtx1080ti-x12.json")
        config = running.train_config(clip_norm=1.0)
        room = (
            "--profile",
            profile,
            "--dim",
            "batch=4",
            "--world",
            "8",
            "--grad-accum",
            "4",
            "--config",
            config,
            "--offload-space",
            "host",
            "--memory",
            "620276",
        )
        auto, plan = report(model, *room)
        again, _ = report(model, *room, "--reduction-order", "per-micro-batch", "--passes", running.inspect(plan)["passes"])
        self.assertLessEqual(predicted(auto), predicted(again) * 1.001)

    def test_what_does_not_fit_is_said_by_the_layout(self):
        archive = running.archive("tiny-llama")
        failed = dcc("compile", archive, "--world", "2", "--memory", "100KiB", *LITTLE, "--no-cache", "-o", running.fresh(), check=False)
        self.assertEqual(failed.returncode, 80)
        self.assertIn("layout-arenas", failed.stderr)

    def test_the_smallest_plan_that_is_named_has_kernels_that_keep_least(self):
        options = (running.archive("tiny-gpt2"), "--world", "2", "--memory", "1KiB", "--no-cache", "-o", running.fresh())
        keeping_least = "normalize-graph,fuse-loss,fuse-output-layer,fuse-products,fuse-elementwise=9,shard-parameters=3,insert-collectives,add-update,schedule,recompute,gather-by-block,layout-arenas"

        def smallest(*more):
            failed = dcc("compile", *options, *more, check=False)
            self.assertEqual(failed.returncode, 80)
            return int(re.search(r"needs (\d+) bytes", failed.stderr)[1])

        self.assertLessEqual(smallest(), smallest("--passes", keeping_least))

    def test_equal_bytes_and_effort_counts(self):
        archive = running.archive("tiny-llama")
        self.assertEqual(compiled(archive, "--world", "3"), compiled(archive, "--world", "3"))
        one, plan = report(archive, "--world", "3", "--search-effort", "1")
        (chosen,) = (remark for remark in running.inspect(plan)["remarks"] if remark["code"] == "chain-chosen")
        self.assertEqual(chosen["numbers"]["simulated"], 1)
        self.assertIn(", of those that the effort was enough for", chosen["text"])
        full, plan = report(archive, "--world", "3")
        (chosen,) = (remark for remark in running.inspect(plan)["remarks"] if remark["code"] == "chain-chosen")
        self.assertNotIn("of those", chosen["text"])
        self.assertLess(predicted(full), predicted(one))
        for options in (("--zero", "1"), ("--passes", "normalize-graph")):
            wrong = dcc("compile", archive, "--world", "2", "--reduction-order", "auto", *options, "-o", running.fresh(), check=False)
            self.assertEqual(wrong.returncode, 64)
            self.assertIn("--reduction-order auto needs --chain auto", wrong.stderr)
        wrong = dcc("compile", archive, "--world", "2", "--search-effort", "0", "-o", running.fresh(), check=False)
        self.assertEqual(wrong.returncode, 64)

    def test_reduction_order_is_chosen_only_when_asked(self):
        archive = running.archive("tiny-llama")
        options = ("--world", "2", "--grad-accum", "4")
        given, _ = report(archive, *options)
        each, _ = report(archive, *options, "--reduction-order", "per-micro-batch")
        once, _ = report(archive, *options, "--reduction-order", "per-step")
        free, _ = report(archive, *options, "--reduction-order", "auto")
        self.assertEqual(given["wire_bytes"], each["wire_bytes"])
        self.assertEqual(each["wire_bytes"]["reduce_scatter"], 4 * once["wire_bytes"]["reduce_scatter"])
        self.assertLessEqual(predicted(free), min(predicted(each), predicted(once)))

    def test_a_search_cut_short_says_so_and_is_not_cached(self):
        archive, cache = running.archive("tiny-llama"), folder()
        self.addCleanup(shutil.rmtree, cache, ignore_errors=True)

        def run(*options):
            return dcc("compile", archive, "--world", "3", "-o", running.fresh(".dcp"), *options, cache=cache).stderr

        cut = run("--search-time", "0.000001")
        self.assertIn("note: search-cut-short", cut)
        self.assertIn("cache miss", cut)
        self.assertIn("cache miss", run())
        self.assertIn("cache hit", run())
        self.assertIn("cache miss", run("--search-effort", "2"))


class AutoBits(bits_case.BitsCase):
    def test_same_bits(self):
        for subject, world, accumulation in (("tiny-llama", 2, 4), ("tiny-gpt2 dropout", 3, 1), ("tiny-llama bfloat16", 4, 1)):
            with self.subTest(subject, world=world, accumulation=accumulation):
                expected = bits_case.run_once(subject, world, 3, accumulation)
                got = bits_case.run_once(subject, world, "auto", accumulation, options=("--poison",))
                self.assert_same(expected, got, "auto")


if __name__ == "__main__":
    unittest.main()
