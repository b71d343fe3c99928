"""Labels of pixels, some of which the loss ignores (`ignore_index=255`, as semantic segmentation has it): a few steps next to PyTorch's, and values that no loss takes.

build/venv/bin/python tests/e2e/ignored_labels_test.py
"""

import unittest

import running
import torch
from dcc_export import export_train_step
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional

IGNORED, CLASSES, ROWS, STEPS, LR = 255, 3, 2, 3, 0.1


class Segmenter(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Conv2d(2, 6, 3, padding=1), nn.Conv2d(6, CLASSES, 1)

    def forward(self, image, labels):
        scores = self.head(functional.relu(self.first(image)))
        return functional.cross_entropy(scores, labels, ignore_index=IGNORED)


def samples():
    generator = torch.Generator().manual_seed(4)
    count = ROWS * STEPS
    labels = torch.randint(CLASSES, (count, 5, 7), generator=generator)
    labels[torch.rand(labels.shape, generator=generator) < 0.3] = IGNORED
    return {"image": torch.rand(count, 2, 5, 7, generator=generator), "labels": labels}


class IgnoredLabels(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        torch.manual_seed(0)
        cls.module, cls.model = Segmenter(), running.fresh(".pt2")
        example = tuple(tensor[:ROWS] for tensor in samples().values())
        export_train_step(cls.module, example, cls.model, optimizer=torch.optim.SGD(cls.module.parameters(), lr=LR), check=False)
        cls.plan = running.compile_plan(cls.model, 1, 0)

    def data(self, tensors):
        path = running.fresh(".safetensors")
        save_file(tensors, path)
        return path

    def test_trains_as_pytorch(self):
        trained = running.train(self.plan, self.model, 1, STEPS, data=self.data(samples()))
        optimizer = torch.optim.SGD(self.module.parameters(), lr=LR)
        for step in range(STEPS):
            loss = self.module(*(tensor[step * ROWS : (step + 1) * ROWS] for tensor in samples().values()))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            self.assertAlmostEqual(trained.steps[step]["loss"], float(loss.detach()), delta=1e-5)

    def test_other_values_are_refused(self):
        for value in (-100, CLASSES, 254):
            tensors = samples()
            tensors["labels"][0, 0, 0] = value
            with self.assertRaises(running.CommandFailed) as failed:
                running.train(self.plan, self.model, 1, 1, data=self.data(tensors))
            self.assertEqual(failed.exception.code, 65)
            self.assertIn(f"value {value} of 'labels' in sample 0 is outside [0, {CLASSES})", str(failed.exception))


if __name__ == "__main__":
    unittest.main()
