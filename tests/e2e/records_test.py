"""Nothing believes what an archive merely records about its tensors (`records.py` damages them one at a time).

build/venv/bin/python tests/e2e/records_test.py
DCC_SLOW_TESTS=1 build/venv/bin/python tests/e2e/records_test.py     # all nets, a fresh seed
"""

import collections
import random
import re
import unittest

import records
import running
import torch
from safetensors.torch import save_file

SEED = random.randrange(1 << 30) if running.SLOW else 5
NETS = records.NETS if running.SLOW else ("views",)
EACH = 150 if running.SLOW else 20


class RecordsTest(unittest.TestCase):
    def test_refused_or_the_same_numbers(self):
        draw = random.Random(SEED)
        for net in NETS:
            cases = records.cases(net)
            draw.shuffle(cases)
            counts = collections.Counter()
            for value, damage in cases:
                outcome = records.attempt(net, value, damage)
                if outcome is None:
                    continue
                with self.subTest(net=net, value=value, damage=damage, seed=SEED):
                    self.assertIn(outcome, records.OUTCOMES)
                counts[outcome] += 1
                if counts.total() == EACH:
                    break
            self.assertGreater(counts["refused"], EACH // 3, counts)

    def test_random_views_of_views(self):
        """PyTorch's own records agree with what is computed, and so does the loss with eager's."""
        seed = random.randrange(1 << 30)
        with self.subTest(seed=seed):
            torch.manual_seed(seed)
            net, (x, y) = records.Chains(seed), records.rows()
            path, data = records.foreign_export(net, (x, y)), running.fresh(".safetensors")
            save_file({"x": x[None].flatten(0, 1), "y": y}, data)
            plan = running.compile_plan(path, 1, 0)
            run = running.train(plan, path, 1, 1, data=data)
            self.assertAlmostEqual(run.steps[0]["loss"], float(net(x, y)), delta=1e-5)

    def test_strides_of_a_view(self):
        """What was trained with other numbers: a transposed weight recorded as if it were not."""
        archive, _, _ = records.undamaged("views")
        views = [value for target, value in records.results(archive.model) if re.search(r"aten\.(permute|transpose|t)\.", target)]
        self.assertTrue(views)
        for value in views[:3]:
            self.assertEqual(records.attempt("views", value, "last stride doubled"), "refused")

    def test_strides_of_a_product(self):
        """Kernels write where the plan says: other strides than theirs change no number."""
        archive, _, _ = records.undamaged("views")
        product = next(value for target, value in records.results(archive.model) if ".addmm." in target)
        for damage in ("strides transposed", "first stride 0", "first stride huge", "offset one more"):
            self.assertEqual(records.attempt("views", product, damage), "same plan")


if __name__ == "__main__":
    unittest.main()
