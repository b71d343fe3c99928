"""Fused kernels that the profile has, those that it does not have, and where plans say that their times come from.

build/venv/bin/python tests/e2e/fused_estimate_test.py
"""

import functools
import json
import os
import re
import subprocess
import sys
import unittest

import rotation
import running

DCC = os.path.join(running.BIN, "dcc")
SCRIPTS = os.path.join(running.ROOT, "scripts")
sys.path.insert(0, SCRIPTS)
FUSIONS = 190  # with those of the model more than the 200 that learning needs


def dcc(*arguments):
    return subprocess.run([DCC, *arguments], capture_output=True, text=True, timeout=300)


@functools.cache
def profile(fusions=FUSIONS, name="a"):
    path = running.fresh(f".{name}.json")
    said = running.run([DCC, "profile", running.archive("tiny-llama"), "--fusions", str(fusions), "-o", path]).stdout
    with open(path) as file:
        return path, json.load(file), said


def fused(document):
    return [row for row in document["kernels"] if row["provider"] == "fused"]


def without_fused(document):
    """Neither those of the default chain, measured in a step, nor those measured alone."""
    return {**document, "kernels": [row for row in document["kernels"] if row["provider"] != "fused"], "alone": []}


def taking(document, factor):
    """Fused kernels take so many times as long as they were measured to, which is another time on each machine."""

    def scaled(value):
        if isinstance(value, dict):
            return {key: round(part * factor) if key.endswith("_ns") else scaled(part) for key, part in value.items()}
        return value

    tables = {"kernels": [scaled(row) if row["provider"] == "fused" else row for row in document["kernels"]], "alone": list(map(scaled, document["alone"]))}
    return {**document, **tables}


def written(document):
    path = running.fresh(".json")
    with open(path, "w") as file:
        json.dump(document, file)
    return path


def compiled(profile_path, *options, chain="default-fusion"):
    """Groups of default-fusion do not depend on times: which of them a profile has is the same every time."""
    plan = running.fresh(".dcp")
    done = dcc("compile", running.archive("tiny-llama"), "--no-cache", "--world", "2", "--chain", chain, "--profile", profile_path, "-o", plan, *options)
    return plan, done


def explained(plan):
    return json.loads(running.run([DCC, "explain", plan, "--json"]).stdout)["fusions"]


class Profile(unittest.TestCase):
    def test_has_as_many_fusions_as_asked_for(self):
        default, many = fused(profile(0)[1]), profile()[1]["alone"]
        self.assertNotIn("alone", profile(0)[1])
        self.assertEqual(len(many), len(default) + FUSIONS)
        self.assertEqual(len({row["key"] for row in many}), len(many))
        self.assertLess({row["key"] for row in default}, {row["key"] for row in many})
        for row in many:
            for state in ("warm", "cold"):
                self.assertGreater(row[state]["samples"], 0)
                self.assertLessEqual(row[state]["fastest_ns"], row[state]["median_ns"])
        in_steps = {row["key"] for row in fused(profile()[1])}
        self.assertLess({row["key"] for row in default}, in_steps)  # a few of the others too
        self.assertTrue(in_steps & {row["key"] for row in many} > {row["key"] for row in default})
        self.assertIn(f"{len(many)} fused kernels alone", profile()[2])

    def test_draws_the_same_every_time(self):
        one, other = ({row["key"] for row in profile(8, name)[1]["alone"]} for name in ("b", "c"))
        self.assertEqual(one, other)

    def test_a_negative_number_is_refused(self):
        self.assertEqual(dcc("profile", running.archive("tiny-llama"), "--fusions", "-1", "-o", running.fresh(".json")).returncode, 64)


@rotation.taking_turns(2)
class Estimates(unittest.TestCase):
    def origins(self, profile_path, *options):
        plan, done = compiled(profile_path, *options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return {fusion["predicted_from"] for fusion in explained(plan)}, plan

    def test_of_enough_fusions_are_learned(self):
        path, document, _ = profile()
        found, plan = self.origins(path)
        self.assertLessEqual(found, {"measured", "learned"})
        self.assertIn("learned", found)
        self.assertIn("learned from other fused kernels", running.run([DCC, "inspect", plan]).stdout)
        self.assertIn(" from=learned", running.run([DCC, "inspect", plan, "--as=text"]).stdout)
        self.assertIn("(learned)", running.run([DCC, "explain", plan]).stdout)
        self.assertEqual(self.origins(path, "--fusion-estimator", "fitted")[0], found)

    def test_of_few_are_a_closed_form(self):
        found, plan = self.origins(written(without_fused(profile()[1])))
        self.assertEqual(found, {"closed form"})
        self.assertIn("from the operations of fused kernels", running.run([DCC, "inspect", plan]).stdout)

    def test_groups_that_were_not_measured_are_fused_where_that_is_learned_to_be_faster(self):
        default = {row["key"] for row in fused(profile(0)[1])}
        drawn = {**profile()[1], **{table: [row for row in profile()[1][table] if row["key"] not in default] for table in ("kernels", "alone")}}
        counts = []
        for document in (taking(drawn, 0.1), taking(drawn, 10), without_fused(drawn)):
            plan, done = compiled(written(document), chain="zero0")
            self.assertEqual(done.returncode, 0, done.stderr)
            counts.append(len(explained(plan)))
        self.assertGreater(counts[0], 0)
        self.assertEqual(counts[1:], [0, 0])

    def test_an_old_profile_cannot_be_fitted_to(self):
        few = {**profile()[1], "kernels": fused(profile()[1]), "alone": []}
        for options in (("--profile", written(few)), ()):
            done = dcc("compile", running.archive("tiny-llama"), "--world", "2", "--fusion-estimator", "fitted", *options, "-o", running.fresh(".dcp"))
            self.assertEqual(done.returncode, 78)
            self.assertIn("DC7037", done.stderr)
            self.assertIn("--fusions", done.stderr)


@rotation.taking_turns(2)
class Network(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        import train_estimator

        cls.script = train_estimator
        cls.weights = running.fresh(".safetensors")
        running.run([sys.executable, os.path.join(SCRIPTS, "train_estimator.py"), profile()[0], "-o", cls.weights, "--seconds", "4"])

    def test_says_what_torch_says(self):
        import safetensors.torch
        import torch

        names = self.script.primitives()
        state = safetensors.torch.load_file(self.weights)
        network = self.script.Network(len(names))
        network.load_state_dict({key: value.reshape(network.state_dict()[key].shape) for key, value in state.items()})
        rows = self.script.table(profile()[0], written(without_fused(profile()[1])), self.weights)
        self.assertGreaterEqual(len(rows), FUSIONS)
        graphs = self.script.Graphs(rows, names)
        with torch.no_grad():
            said = torch.exp(network(*graphs.some(torch.arange(len(rows)))))
        for row, time in zip(rows, said, strict=True):
            self.assertLessEqual(abs(row["network_ns"] - float(time)), 1 + 1e-3 * float(time), row["key"])

    def test_plans_are_of_its_digest(self):
        path = profile()[0]
        plan, done = compiled(path, "--fusion-estimator", self.weights)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("learned", {fusion["predicted_from"] for fusion in explained(plan)})
        self.assertRegex(running.inspect(plan)["options"], r" fusion-estimator=[0-9a-f]{64} ")

    def test_a_simulation_is_of_the_same_estimates(self):
        path, model = profile()[0], running.archive("tiny-llama")
        plan, done = compiled(path, "--fusion-estimator", self.weights, "--json")
        step = json.loads(done.stdout)["prediction"]["step_ns"]

        def simulated(*options):
            done = dcc("simulate", plan, "--profile", path, "--json", *options)
            self.assertEqual(done.returncode, 0, done.stderr)
            return json.loads(done.stdout), done.stderr

        said, notes = simulated("--fusion-estimator", self.weights)
        self.assertEqual((said["prediction"]["step_ns"], notes), (step, ""))
        for options in ((), ("--no-cache", "--world", "2")):
            rows = simulated("--model", model, "--fusion-estimator", self.weights, *options)[0]["rows"]
            self.assertEqual(rows[0]["step_ns"], step)
        said, notes = simulated()
        self.assertNotEqual(said["prediction"]["step_ns"], step)
        self.assertRegex(notes, r"^note: the plan was compiled with an estimator .* of digest [0-9a-f]{64}; without --fusion-estimator ")
        other = simulated("--fusion-estimator", "fitted")
        self.assertEqual((other[0], other[1]), (said, ""))
        failed = dcc("simulate", plan, "--profile", path, "--fusion-estimator", os.path.join(running.ROOT, "no-such.safetensors"))
        self.assertEqual((failed.returncode, failed.stdout), (66, ""))

    def test_a_calibration_is_of_the_same_estimates(self):
        path = profile()[0]
        plan, done = compiled(path, "--fusion-estimator", self.weights)
        self.assertEqual(done.returncode, 0, done.stderr)
        recorded = running.fresh(".json")
        command = [plan, "--weights", running.archive("tiny-llama"), "--data", "synthetic:1", "--steps", "6", "--record-profile", recorded]
        running.run(running.launch("dcrun", 2, command))
        with open(recorded) as file:
            measured = json.load(file)["step"]

        def calibrated(*options):
            better = running.fresh(".json")
            done = dcc("calibrate", plan, "--profile", path, "--recorded", recorded, "-o", better, *options)
            return better, done

        better, done = calibrated("--fusion-estimator", self.weights)
        self.assertEqual((done.returncode, done.stderr.count("estimator")), (0, 0), done.stderr)
        said = dcc("simulate", plan, "--profile", better, "--json", "--fusion-estimator", self.weights)
        predicted = json.loads(said.stdout)["prediction"]
        compute = predicted["compute_ns"] + predicted["contention_ns"]
        self.assertAlmostEqual(compute / measured["compute"]["median_ns"], 1, delta=0.02)
        collectives = float(re.search(r"collectives x ([\d.]+)", done.stdout)[1])
        if 0.13 < collectives < 7.9:  # a link as fast as memory may not make up for what threads need to wake up
            self.assertAlmostEqual(predicted["step_ns"] / measured["whole"]["median_ns"], 1, delta=0.01)
        other, without = calibrated()
        self.assertEqual(without.returncode, 0, without.stderr)
        self.assertRegex(without.stderr, r"note: the plan was compiled with an estimator .*; without --fusion-estimator ")
        with open(better) as first, open(other) as second:
            self.assertNotEqual(json.load(first)["kernels"], json.load(second)["kernels"], "scaled by other figures")
        output, failed = calibrated("--fusion-estimator", os.path.join(running.ROOT, "no-such.safetensors"))
        self.assertEqual((failed.returncode, os.path.exists(output)), (66, False))
        none = written(without_fused(profile()[1]))
        failed = dcc("calibrate", plan, "--profile", none, "--recorded", recorded, "-o", output, "--fusion-estimator", "fitted")
        self.assertEqual((failed.returncode, os.path.exists(output)), (78, False))
        self.assertIn("DC7037", failed.stderr)

    def test_without_a_profile_it_has_nothing_to_start_from(self):
        plan = compiled(profile()[0])[0]
        for command in (("compile", running.archive("tiny-llama"), "--world", "2", "-o", running.fresh(".dcp")), ("simulate", plan)):
            done = dcc(*command, "--fusion-estimator", self.weights)
            self.assertEqual((done.returncode, done.stdout), (78, ""), done.stderr)
            self.assertRegex(done.stderr, r"error\[DC7037\]: --fusion-estimator .*: there is no profile.* give one by --profile")

    def refused(self, weights, kind, *words):
        done = compiled(profile()[0], "--fusion-estimator", weights)[1]
        self.assertEqual(done.returncode, kind, done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)

    def written(self, content):
        path = running.fresh(".safetensors")
        with open(path, "wb") as file:
            file.write(content)
        return path

    def with_tensors(self, change):
        """The weights after change(tensors), written as train_estimator.py writes them."""
        names = self.script.primitives()
        network = self.script.Network(len(names))
        change(network.state_dict())
        path = running.fresh(".safetensors")
        self.script.save(network, names, path)
        return path

    def test_bad_files_are_refused(self):
        with open(self.weights, "rb") as file:
            whole = file.read()
        self.refused(self.written(whole.replace(b"aten.add.Tensor", b"aten.odd.Tensor")), 76, "DC7021", "train_estimator.py")
        self.refused(self.written(whole.replace(b'"version":"2"', b'"version":"3"')), 76, "DC7021", "version 3", "train_estimator.py")
        self.refused(self.written(whole.replace(b"dcc-fused-estimator", b"dcc-fused-estimatox")), 65, "DC7022")
        self.refused(self.written(whole.replace(b"pool.weight", b"poal.weight")), 65, "DC7022", "train_estimator.py")
        self.refused(self.with_tensors(lambda tensors: tensors["pool.bias"].fill_(float("nan"))), 65, "DC7022", "no finite numbers")
        self.refused(os.path.join(running.ROOT, "no-such.safetensors"), 66, "DC1001")
        self.refused(profile()[0], 65, "DC1321")
        self.refused(running.ROOT, 65, "DC1006")

    def test_damaged_files_are_refused(self):
        with open(self.weights, "rb") as file:
            whole = file.read()
        begin = 8 + int.from_bytes(whole[:8], "little")  # of the weights
        for length in (0, 1, 7, 8, 9, begin - 1, begin, begin + 1, len(whole) // 2, len(whole) - 1):
            self.refused(self.written(whole[:length]), 65, "DC1321")
        for at in (0, 3, 8, 20, begin // 2, begin - 1, begin, begin + 3, (begin + len(whole)) // 2, len(whole) - 1):
            damaged = bytearray(whole)
            damaged[at] ^= 0x10
            done = compiled(profile()[0], "--fusion-estimator", self.written(damaged))[1]
            self.assertIn(done.returncode, (65, 76), f"byte {at}: {done.stderr}")
            self.assertRegex(done.stderr, r"error\[DC(11\d\d|1321|702[12])\]")


if __name__ == "__main__":
    unittest.main()
