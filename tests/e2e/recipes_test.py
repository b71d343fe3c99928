"""What the whole-run comparison can see: PyTorch alone, with one part of a recipe left out, ends elsewhere by far more than the bounds allow."""

import copy
import dataclasses
import unittest

import torch

import parts
import recipe_optimizer
import recipes
from reference import Reference, Training, make_data, workloads

STEPS = 20
SMALLEST = 1e-4  # ten times the bound of a parameter


@dataclasses.dataclass
class Changed(Training):
    """Training with another train.json."""

    train_json: dict = None

    def config(self):
        return self.train_json


def variants(given):
    """(what is left out, train.json without it)"""
    defaults = {"betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.0, "momentum": 0.0, "dampening": 0.0, "nesterov": False}
    for key in given["optimizer"].keys() & defaults.keys():
        if given["optimizer"][key] == defaults[key] or (key == "momentum" and given["optimizer"].get("nesterov")):
            continue
        changed = copy.deepcopy(given)
        changed["optimizer"][key] = defaults[key]
        if key == "momentum":
            changed["optimizer"]["dampening"] = 0.0
        yield key, changed
    for key in ("groups", "clip_norm", "schedule"):
        if given.get(key):
            yield key, {k: v for k, v in given.items() if k != key}
    for key in ("warmup", "final_lr_fraction"):
        if given.get("schedule", {}).get(key):
            changed = copy.deepcopy(given)
            changed["schedule"][key] = 0
            yield key, changed


class Recipes(unittest.TestCase):
    def setUp(self):
        torch.set_num_threads(1)
        self.workload = parts.workload()
        inputs = [{"name": name, **role} for name, role in self.workload.roles.items()]
        self.data = make_data({"inputs": inputs}, self.workload.inputs, STEPS * 4)
        self.reference = Reference(self.workload, workloads.Options())

    def state(self, given):
        return self.reference.run(self.data, Changed(STEPS, train_json=given), "given").state

    def distance(self, a, b):
        return max(float((a[n].double() - b[n].double()).norm() / b[n].double().norm().clamp_min(1e-12)) for n in a)

    def test_every_part_of_a_recipe_shows(self):
        for name in recipes.RECIPES:
            given = recipes.config(name, STEPS)
            whole = self.state(given)
            self.assertEqual(self.distance(self.state(given), whole), 0)
            for part, changed in variants(given):
                with self.subTest(recipe=name, without=part):
                    self.assertGreater(self.distance(self.state(changed), whole), SMALLEST)

    def test_frozen_parameters_stay_and_buffers_move(self):
        start = {n: v.clone() for n, v in self.workload.module.state_dict().items()}
        end = self.state(recipes.config("sgd", STEPS))
        for name, value in end.items():
            moves = not name.startswith("frozen.") and name not in ("hidden.bias", "tilt")
            self.assertEqual(bool((value != start[name]).any()), moves, name)
        self.assertIn("norm.running_mean", end)

    def test_a_schedule_is_the_one_of_its_name(self):
        """Rates by hand, for the steps of a run of 6."""
        for name, lr, expected in (
            ("sgd-momentum-linear", 0.05, [0.25, 0.5, 0.75, 1, 0.55, 0.1]),
            ("sgd-nesterov-cosine", 0.05, [0.9330127, 0.75, 0.5, 0.25, 0.0669873, 0.0]),
            ("sgd-dampened-warmup", 0.1, [1 / 6, 2 / 6, 3 / 6, 4 / 6, 5 / 6, 1]),
            ("adamw-linear-unclipped", 5e-3, [0.875, 0.75, 0.625, 0.5, 0.375, 0.25]),
        ):
            weight = torch.nn.Parameter(torch.ones(2))
            optimizer = recipe_optimizer.Optimizer(recipes.config(name, 6), {"x": weight})
            for factor in expected:
                self.assertAlmostEqual(optimizer.optimizer.param_groups[0]["lr"], lr * factor, 9, name)
                weight.grad = torch.zeros(2)
                optimizer.step()


if __name__ == "__main__":
    unittest.main()
