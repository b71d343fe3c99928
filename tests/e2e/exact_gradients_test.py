"""Gradients next to exact ones, computed in double precision from the same parameters: of bf16, and of f32 through many batch norms.

build/venv/bin/python tests/e2e/exact_gradients_test.py
PyTorch's kernels and ours round at different places (its attention rounds probabilities to bf16, ours does not), so one may be as far from the other as both are
from what is right. Ours must not be farther from that than PyTorch's are. The logits of small-llama are made in parts.
"""

import os
import unittest

from safetensors.torch import load_file, save_file

import parity
import running
from reference import Reference, Training, make_data, workloads

MODELS = (("tiny-llama", "bfloat16"), ("tiny-gpt2", "bfloat16"), ("small-llama", "bfloat16"), ("resnet18", "float32"), ("small-resnet50", "float32"))
NEAR, FAR = 1.2, 1.3  # of PyTorch's distance, on average and of the worst gradient: roundings fall as they may


def distances(gradients, exact):
    """Of each gradient from the exact one, as a part of its norm, in order of names."""
    return [float((gradients[name].double().reshape(g.shape) - g).norm() / g.norm()) for name, g in sorted(exact.items())]


def trained(archive, data, accumulation):
    """Gradients of step 1."""
    path, folder = running.fresh(".safetensors"), os.path.dirname(running.fresh())
    save_file(data, path)
    plan = running.compile_plan(archive, 1, 0, accumulation)
    running.train(plan, archive, 1, 1, "--dump-gradients", folder, data=path)
    return load_file(os.path.join(folder, "gradients.safetensors"))


class ExactGradients(unittest.TestCase):
    def test_gradients_are_as_near_to_exact_ones_as_pytorchs(self):
        for model, dtype in MODELS:
            with self.subTest(model):
                archive = running.archive(model, "--dtype", dtype)
                options = workloads.Options(*parity.workloads_shape(model), dtype=dtype)
                workload = workloads.make(options, preset=model)
                reference = Reference(workload, options)
                batch = next(iter(workload.inputs.values())).shape[0]
                for count in (1, 8) if model.startswith("tiny") else (1,):
                    training = Training(1, accumulation=count)
                    data = make_data(running.description(archive), workload.inputs, batch * count)
                    self.compare(model, archive, reference, data, training)

    def compare(self, model, archive, reference, data, training):
        exact = reference.exact_gradients(data, training)
        pytorchs = distances(reference.run(data, training, "given").gradients, exact)
        ours = distances(trained(archive, data, training.accumulation), exact)
        print(
            f"  {model}, {training.accumulation} micro-batches: mean distance {sum(ours) / len(ours):.2e}, PyTorch's {sum(pytorchs) / len(pytorchs):.2e};"
            f" largest {max(ours):.2e}, {max(pytorchs):.2e}"
        )
        self.assertLess(sum(ours), NEAR * sum(pytorchs))
        self.assertLess(max(ours), FAR * max(pytorchs))


if __name__ == "__main__":
    unittest.main()
