"""What the exporter tests share: running the command, reading archives, a temporary folder, a small module."""

import contextlib
import io
import json
import os
import sys
import tempfile
import unittest
import zipfile

import torch

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "scripts"))

from dcc_export import ExportError, command, export_train_step  # noqa: E402, F401 (tests take them from here)


def run_command(*arguments):
    """Returns (exit code, what it printed)."""
    printed = io.StringIO()
    with contextlib.redirect_stderr(printed):
        code = command.main(list(arguments))
    return code, printed.getvalue()


def read_entry(path, suffix):
    with zipfile.ZipFile(path) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith(suffix)]
        return archive.read(name)


def description(path):
    return json.loads(read_entry(path, "extra/dcc.json"))


def targets(program, kind):
    specs = list(program.graph_signature.input_specs) + list(program.graph_signature.output_specs)
    return [s.target for s in specs if s.kind is kind]


class Regression(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = torch.nn.Linear(4, 8)
        self.fc2 = torch.nn.Linear(8, 1)

    def forward(self, x, y):
        return torch.nn.functional.mse_loss(self.fc2(self.fc1(x).relu()), y)


def regression_inputs():
    return torch.randn(6, 4), torch.randn(6, 1)


class ExportTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        torch.manual_seed(0)

    def path(self, name="model.pt2"):
        return os.path.join(self.folder, name)

    def export(self, module, inputs, **options):
        """Exports with the built-in check and returns the reloaded program."""
        export_train_step(module, inputs, self.path(), **options)
        return torch.export.load(self.path())
