"""points.py make FILE: writes labelled points. points.py score SAVED FILE: how many the trained model gets right."""

import sys

import torch
from safetensors.torch import load_file, save_file

from export_mlp import Classifier


def make(path):
    """Three rings around the origin: no straight line separates them. One tensor [samples, ...] per input of the model."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(3, (2048,), generator=generator)
    radius = 0.5 + labels + 0.15 * torch.randn(2048, generator=generator)
    angle = 6.2832 * torch.rand(2048, generator=generator)
    points = radius[:, None] * torch.stack((angle.cos(), angle.sin()), dim=1)
    save_file({"points": points, "labels": labels}, path)


def score(saved, path):
    model, data = Classifier(), load_file(path)
    model.load_state_dict(load_file(saved))
    chosen = model.layers(data["points"]).argmax(dim=1)
    share = (chosen == data["labels"]).float().mean().item()
    print(f"{share:.1%} of {len(chosen)} points right (guessing: 33.3%)")
    return 0 if share > 0.9 else 1


if __name__ == "__main__":
    sys.exit(make(sys.argv[2]) if sys.argv[1] == "make" else score(sys.argv[2], sys.argv[3]))
