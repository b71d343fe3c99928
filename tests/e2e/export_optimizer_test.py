"""What an archive says of a live optimizer, and which optimizers are refused.

build/venv/bin/python tests/e2e/export_optimizer_test.py
"""

import math
import unittest

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from export_case import ExportTest, Regression, description, regression_inputs

from dcc_export import ExportError


class OptimizerTest(ExportTest):
    def described(self, module, optimizer, **options):
        self.export(module, regression_inputs(), optimizer=optimizer, check=False, **options)
        return description(self.path())["optimizer"]

    def test_adamw_with_groups(self):
        module = Regression()
        biases = [module.fc1.bias, module.fc2.bias]
        weights = [module.fc1.weight, module.fc2.weight]
        optimizer = torch.optim.AdamW([{"params": weights}, {"params": biases, "weight_decay": 0.0}], lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1)
        self.assertEqual(
            self.described(module, optimizer, clip_norm=1.0),
            {
                "optimizer": {"kind": "adamw", "lr": 3e-4, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1},
                "groups": [{"match": "fc1.bias", "weight_decay": 0.0}, {"match": "fc2.bias", "weight_decay": 0.0}],
                "clip_norm": 1.0,
            },
        )

    def test_sgd(self):
        module = Regression()
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
        self.assertEqual(self.described(module, optimizer), {"optimizer": {"kind": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 0.0}})

    def test_sgd_with_nesterov_or_dampening(self):
        module = Regression()
        for options in ({"nesterov": True}, {"dampening": 0.5}):
            optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9, **options)
            expected = {"kind": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 0.0, **options}
            self.assertEqual(self.described(module, optimizer), {"optimizer": expected})
        groups = [{"params": module.fc1.parameters()}, {"params": module.fc2.parameters(), "nesterov": False}]
        with self.assertRaisesRegex(ExportError, "groups differ in ..nesterov"):
            self.described(module, torch.optim.SGD(groups, lr=0.1, momentum=0.9, nesterov=True))

    def test_adam_without_weight_decay_is_adamw(self):
        module = Regression()
        for options, decay in (({}, 0.0), ({"weight_decay": 0.1, "decoupled_weight_decay": True}, 0.1)):
            described = self.described(module, torch.optim.Adam(module.parameters(), lr=1e-3, **options))
            self.assertEqual(described["optimizer"], {"kind": "adamw", "lr": 1e-3, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": decay})

    def test_none(self):
        self.export(Regression(), regression_inputs(), check=False)
        self.assertNotIn("optimizer", description(self.path()))

    def test_refused(self):
        module, other = Regression(), Regression()
        cases = [
            ("is trainable but not in", torch.optim.AdamW([module.fc1.weight])),
            ("the module does not have", torch.optim.AdamW(list(module.parameters()) + list(other.parameters()))),
            ("weight decay of Adam", torch.optim.Adam(module.parameters(), weight_decay=0.1)),
            ("not supported", torch.optim.RMSprop(module.parameters())),
            ("amsgrad", torch.optim.AdamW(module.parameters(), amsgrad=True)),
            ("maximize", torch.optim.SGD(module.parameters(), lr=1, maximize=True)),
            ("holds parameter fc1.bias twice", torch.optim.SGD([module.fc1.weight, module.fc1.bias, *module.fc2.parameters(), module.fc1.bias], lr=1)),
        ]
        for pattern, optimizer in cases:
            with self.subTest(pattern), self.assertRaisesRegex(ExportError, pattern):
                self.described(module, optimizer)
        optimizer = torch.optim.SGD(module.parameters(), lr=1)
        optimizer.step = lambda: None
        with self.assertRaisesRegex(ExportError, "another step.. than its class"):
            self.described(module, optimizer)
        handle = register_optimizer_step_pre_hook(lambda *_: None)
        try:
            with self.assertRaisesRegex(ExportError, "every optimizer has step hooks"):
                self.described(module, torch.optim.SGD(module.parameters(), lr=1))
        finally:
            handle.remove()
        for limit in (math.inf, math.nan, -1.0):
            with self.subTest(limit), self.assertRaisesRegex(ExportError, "clip_norm is .*; give a positive number"):
                self.described(module, torch.optim.SGD(module.parameters(), lr=1), clip_norm=limit)


if __name__ == "__main__":
    unittest.main()
