"""Plans whose operators run in dcrun itself: without libtorch, near the numbers with it, equal bits where the plan may differ, with fused kernels too.

build/venv/bin/python tests/e2e/providers_test.py
"""

import itertools
import json
import os
import shutil
import unittest

import bits_case
import rotation
import running

LIBTORCH = ("--providers", "aten")
STEPS = 4


def without(library):
    """A folder with the other plug-ins: the environment in which this one is not found."""
    folder = os.path.dirname(running.fresh())
    for name in os.listdir(running.LIB):
        if name.startswith("libdcrun_") and name != library:
            shutil.copy(os.path.join(running.LIB, name), folder)
    return {"DCRUN_PLUGIN_DIR": folder}


def without_libtorch():
    return without("libdcrun_aten.so")


def has_products():
    return os.path.exists(os.path.join(running.LIB, "libdcrun_onednn.so"))


def aten_operators(plan):
    """What `dcc inspect --as=summary` says that libtorch is needed for."""
    shown = running.run([os.path.join(running.BIN, "dcc"), "inspect", "--as=summary", plan]).stdout
    return next(line for line in shown.splitlines() if line.startswith("kernels "))


def output_layers(plan):
    """How much of the logits each kernel of an output layer has at once."""
    instructions = [one for program in running.inspect(plan)["programs"] for one in program["instructions"]]
    layers = [one for one in instructions if one.get("op") == "dc.linear_cross_entropy"]
    return [{arg["name"]: arg["value"] for arg in one["args"] if arg["name"] in ("rows", "classes")} for one in layers]


@unittest.skipUnless(has_products(), "libdcrun_onednn.so was not built (DCC_WITH_ONEDNN)")
@rotation.taking_turns(2)
class Providers(unittest.TestCase):
    def test_models_train_where_there_is_no_libtorch(self):
        for preset in (("mlp",), ("tiny-llama",), ("small-reformer",), ("tiny-llama", "--dtype", "bfloat16")):
            with self.subTest(preset):
                model = running.archive(*preset)
                plan = running.compile_plan(model, 2, 3)
                self.assertIn("libtorch is not needed", aten_operators(plan))
                native = running.train(plan, model, 2, STEPS, environment=without_libtorch())
                aten = running.train(running.compile_plan(model, 2, 3, 1, *LIBTORCH), model, 2, STEPS)
                close = 1e-5 if len(preset) == 1 else 1e-3
                for mine, theirs in zip(native.steps, aten.steps, strict=True):
                    self.assertAlmostEqual(mine["loss"], theirs["loss"], delta=close * theirs["loss"])

    def test_convolutions_need_no_libtorch(self):
        model = running.archive("resnet18")
        losses = []
        for options, environment in (((), without_libtorch()), (LIBTORCH, {})):
            plan = running.compile_plan(model, 1, 0, 1, *options)
            self.assertEqual("libtorch is not needed" in aten_operators(plan), options != LIBTORCH)
            # One step: batch norm makes the next ones depend on the last bit.
            losses.append(running.train(plan, model, 1, 1, environment=environment).steps[0]["loss"])
        self.assertAlmostEqual(losses[0], losses[1], delta=1e-6 * losses[1])

    def test_stages_and_repetitions_give_equal_bits(self):
        model = running.archive("tiny-llama")
        losses = set()
        for zero in (0, 3, 3):
            run = running.train(running.compile_plan(model, 2, zero), model, 2, STEPS, "--poison")
            losses.add(tuple(step["loss"] for step in run.steps))
        self.assertEqual(len(losses), 1)

    def test_fused_kernels_give_the_bits_of_their_operators(self):
        for subject in bits_case.SUBJECTS.values():
            if subject == ("mlp",):
                continue  # its element-wise operators do not follow each other
            with self.subTest(subject):
                model = running.archive(*subject)
                outcomes = []
                fusions = ("fuse-elementwise,", "fuse-elementwise=8,", "fuse-elementwise=9,")
                for zero, fuse in (*itertools.product((0, 3), fusions), (3, "")):
                    chain = bits_case.TO_SCHEDULE.format(zero).replace("fuse-elementwise,", fuse) + ",layout-arenas"
                    plan = running.compile_plan(model, 2, chain)
                    kernels = {one.get("provider") for program in running.inspect(plan)["programs"] for one in program["instructions"]}
                    self.assertEqual("fused" in kernels, bool(fuse))
                    run = running.train(plan, model, 2, STEPS, "--poison")
                    outcomes.append((run.numbers(), run.tensors()))
                for outcome in outcomes[1:]:
                    self.assertEqual(outcome, outcomes[0])

    def test_fused_kernels_end_with_reductions_where_that_is_measured_to_be_faster(self):
        """The bits are those of the operators apart."""
        for options in ((), ("--dtype", "bfloat16")):
            model, profile = running.archive("tiny-llama", *options), running.fresh(".json")
            running.run([os.path.join(running.BIN, "dcc"), "profile", model, "-n", "1", "-o", profile])
            with open(profile) as file:
                document = json.load(file)
            outcomes = []
            for factor in (1e-3, 1e6):  # of what such a kernel takes
                for row in document["kernels"]:
                    if row["provider"] == "fused" and any(word in row["key"] for word in ("sum.dim_IntList", "mean.dim")):
                        row["median_ns"] = row["fastest_ns"] = max(1, round(row["median_ns"] * factor))
                with open(profile, "w") as file:
                    json.dump(document, file)
                chain = bits_case.TO_SCHEDULE.format(0) + ",layout-arenas"
                plan = running.compile_plan(model, 2, chain, 1, "--profile", profile)
                programs = running.inspect(plan)["programs"]
                fused = [str(one["args"]) for program in programs for one in program["instructions"] if one.get("provider") == "fused"]
                self.assertEqual(any("sum.dim_IntList" in body or "mean.dim" in body for body in fused), factor < 1)
                run = running.train(plan, model, 2, STEPS, "--poison")
                outcomes.append((run.numbers(), run.tensors()))
            self.assertEqual(*outcomes)

    def test_fused_losses_give_the_bits_of_their_operators(self):
        for subject in ("tiny-llama", "tiny-llama bfloat16", "tiny-llama autocast"):
            for world, zero in ((1, 0), (2, 0), (2, 3)):
                with self.subTest(subject, world=world, zero=zero):
                    model = running.archive(*bits_case.SUBJECTS[subject])
                    outcomes = []
                    for loss, options in (("", ()), ("fuse-loss,", ()), ("fuse-loss,", ("--recompute", "full"))):
                        chain = bits_case.TO_SCHEDULE.format(zero).replace("fuse-loss,fuse-output-layer,", loss) + ",recompute,layout-arenas"
                        plan = running.compile_plan(model, world, chain, 1, *options)
                        operators = {one.get("op") for program in running.inspect(plan)["programs"] for one in program["instructions"]}
                        self.assertEqual("dc.cross_entropy_backward" in operators, bool(loss))
                        self.assertEqual("aten.nll_loss_backward.default" in operators, not loss)
                        run = running.train(plan, model, world, STEPS, "--poison")
                        outcomes.append((run.numbers(), run.tensors()))
                    self.assertEqual(outcomes[1], outcomes[0])
                    self.assertEqual(outcomes[2], outcomes[0])

    def test_an_output_layer_of_one_part_gives_the_bits_of_its_operators(self):
        for subject in ("tiny-llama", "tiny-llama-tied", "tiny-mixtral", "tiny-llama bfloat16", "tiny-llama autocast"):
            with self.subTest(subject):
                model = running.archive(*bits_case.SUBJECTS[subject])
                outcomes = []
                for layer, zero in (("", 0), ("fuse-output-layer,", 0), ("fuse-output-layer,", 3)):
                    chain = bits_case.TO_SCHEDULE.format(zero).replace("fuse-output-layer,", layer) + ",layout-arenas"
                    plan = running.compile_plan(model, 2, chain)
                    self.assertEqual(len(output_layers(plan)), 1 if layer else 0)
                    run = running.train(plan, model, 2, STEPS, "--poison")
                    outcomes.append((run.numbers(), run.tensors()))
                self.assertEqual(outcomes[1], outcomes[0])
                self.assertEqual(outcomes[2], outcomes[0])

    def test_an_output_layer_in_parts_gives_the_same_bits_in_every_plan(self):
        for preset, part in (
            (("tiny-llama", "--batch", "8", "--seq", "64"), {"rows": 256, "classes": 256}),
            (("tiny-llama", "--batch", "8", "--seq", "64", "--dtype", "bfloat16"), {"rows": 256, "classes": 256}),
            (("small-llama", "--dtype", "autocast-bfloat16"), {"rows": 512, "classes": 256}),
        ):
            with self.subTest(preset):
                model = running.archive(*preset)
                outcomes = []
                for zero, options in ((0, ()), (3, ()), (3, ("--recompute", "full")), ("no-fusion", ())):
                    plan = running.compile_plan(model, 2, zero, 2, "--reduction-order", "per-step", *options)
                    self.assertEqual(output_layers(plan), [part, part], "another program for micro-batches before the last")
                    run = running.train(plan, model, 2, 3, "--poison")
                    outcomes.append((run.numbers(), run.tensors()))
                self.assertEqual([outcome == outcomes[0] for outcome in outcomes], [True] * len(outcomes))
                chain = bits_case.TO_SCHEDULE.format(0).replace("fuse-output-layer,", "") + ",layout-arenas"
                apart = running.train(running.compile_plan(model, 2, chain, 2), model, 2, 1)
                loss = apart.steps[0]["loss"]
                self.assertAlmostEqual(outcomes[0][0][0][0], loss, delta=1e-6 * loss)

    def test_a_plan_that_needs_libtorch_says_for_what(self):
        model = running.archive("mlp")
        plan = running.compile_plan(model, 2, 3, 1, *LIBTORCH)
        self.assertIn("libtorch is needed for aten.mm.default", aten_operators(plan))
        with self.assertRaises(running.CommandFailed) as failed:
            running.train(plan, model, 2, 1, environment=without_libtorch())
        self.assertEqual(failed.exception.code, 69)
        for words in ("DC6110", "libtorch is needed for aten._log_softmax", "without --providers aten"):
            self.assertIn(words, str(failed.exception))

    def test_a_plan_that_needs_onednn_says_for_what(self):
        model = running.archive("mlp")
        with self.assertRaises(running.CommandFailed) as failed:
            running.train(running.compile_plan(model, 2, 3), model, 2, 1, environment=without("libdcrun_onednn.so"))
        self.assertEqual(failed.exception.code, 69)
        for words in ("DC6135", "oneDNN is needed for aten.", "--providers aten"):
            self.assertIn(words, str(failed.exception))

    def test_the_report_counts_kernels(self):
        model, plan = running.archive("mlp"), running.fresh(".dcp")
        command = [os.path.join(running.BIN, "dcc"), "compile", model, "--no-cache", "--world", "2", "-o", plan, "--json"]
        counted = {choice: json.loads(running.run([*command, "--providers", choice]).stdout)["kernels"] for choice in ("aten", "native", "any")}
        self.assertEqual(json.loads(running.run(command).stdout)["kernels"], counted["native"], "the default")
        self.assertEqual(counted["native"]["aten_operators"], {})
        self.assertEqual(counted["any"], counted["native"], "without a profile")
        # Cross entropy is two kernels in place of libtorch's four.
        self.assertEqual(counted["aten"]["aten"] + counted["aten"]["native"], counted["native"]["native"] + 2)
        self.assertEqual(sum(counted["aten"]["aten_operators"].values()), counted["aten"]["aten"])

    def test_a_profile_has_both_providers(self):
        model, profile = running.archive("mlp"), running.fresh(".json")
        running.run([os.path.join(running.BIN, "dcc"), "profile", model, "-n", "1", "-o", profile])
        with open(profile) as file:
            rows = json.load(file)["kernels"]
        products = [row["provider"] for row in rows if row["key"].startswith("aten.mm.default ")]
        self.assertEqual(products.count("aten"), products.count("native"))
        self.assertGreater(products.count("native"), 0)
        plan = running.compile_plan(model, 1, 0, 1, "--profile", profile)
        figures = running.inspect(plan)["prediction"]["figures_ns"]
        self.assertEqual(figures[3], 0, "kernels with a figure from the table")

    def test_a_profile_is_made_where_there_is_no_libtorch(self):
        model, profile = running.archive("tiny-llama"), running.fresh(".json")
        said = running.run([os.path.join(running.BIN, "dcc"), "profile", model, "-n", "2", "-o", profile], env={**os.environ, **without_libtorch()}).stdout
        self.assertIn("libtorch's kernels have no figures", said)
        with open(profile) as file:
            rows = json.load(file)["kernels"]
        self.assertEqual({row["provider"] for row in rows}, {"native", "fused"})
        self.assertTrue(any(row["key"].startswith("dc.adamw ") for row in rows))
        for choice in ("native", "any"):
            plan = running.compile_plan(model, 2, 0, 1, "--profile", profile, "--providers", choice)
            self.assertIn("libtorch is not needed", aten_operators(plan))

    def test_a_profile_of_one_provider_is_said_to_estimate_the_other(self):
        model, profile = running.archive("mlp"), running.fresh(".json")
        running.run([os.path.join(running.BIN, "dcc"), "profile", model, "-n", "1", "-o", profile])
        with open(profile) as file:
            measured = json.load(file)
        everything, plan = measured["kernels"], running.fresh(".dcp")
        for left_out, estimated in (("native", ("native", "any")), ("aten", ("aten",)), ("none", ())):
            measured["kernels"] = [row for row in everything if row["provider"] != left_out or row["key"].startswith("dc.")]
            with open(profile, "w") as file:
                json.dump(measured, file)
            for choice in ("aten", "native", "any"):
                command = [os.path.join(running.BIN, "dcc"), "compile", model, "--no-cache", "--world", "1", "--zero", "0", "-o", plan, "--profile", profile]
                said = running.run([*command, "--providers", choice]).stderr
                self.assertEqual("profile-providers" in said, choice in estimated, (left_out, choice, said))
                self.assertEqual("libtorch is not needed" in aten_operators(plan), choice != "aten")

    def test_any_takes_libtorch_where_it_is_faster_and_worth_loading(self):
        model, profile = running.archive("mlp"), running.fresh(".json")
        running.run([os.path.join(running.BIN, "dcc"), "profile", model, "-n", "1", "-o", profile])
        with open(profile) as file:
            measured = json.load(file)
        for native_ns, faster in ((10**6, True), (1000, False), (105_000, False)):
            for row in measured["kernels"]:
                is_product = row["key"].startswith("aten.mm.default ")
                aten_ns = 100_000 if native_ns == 105_000 else 500
                row["median_ns"] = row["fastest_ns"] = aten_ns if not is_product or row["provider"] == "aten" else native_ns
            with open(profile, "w") as file:
                json.dump(measured, file)
            plan = running.compile_plan(model, 1, 0, 1, "--profile", profile, "--providers", "any")
            self.assertEqual("libtorch is needed for aten.mm.default" in aten_operators(plan), faster, native_ns)

    def test_a_profile_has_fused_kernels_and_keeps_those_that_are_faster(self):
        model, profile = running.archive("tiny-llama"), running.fresh(".json")
        running.run([os.path.join(running.BIN, "dcc"), "profile", model, "-n", "1", "-o", profile])
        with open(profile) as file:
            measured = json.load(file)
        for faster in (True, False):
            for row in measured["kernels"]:
                if row["provider"] == "fused":
                    row["median_ns"] = row["fastest_ns"] = 1 if faster else 10**9
            with open(profile, "w") as file:
                json.dump(measured, file)
            plan = running.compile_plan(model, 1, 0, 1, "--profile", profile)
            self.assertEqual("fused" in aten_operators(plan), faster)


if __name__ == "__main__":
    unittest.main()
