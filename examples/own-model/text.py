"""text.py make FILE: writes this project's README as bytes, one token each. text.py score SAVED FILE: how well the trained model
predicts the byte that comes next."""

import os
import sys

import numpy as np
import torch
from safetensors.torch import load_model

from gpt import LENGTH, Gpt

README = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "README.md")


def make(path):
    with open(README, "rb") as file:
        np.frombuffer(file.read(), dtype=np.uint8).astype(np.uint16).tofile(path)


def score(saved, path):
    model = Gpt()
    load_model(model, saved)  # knows that a tied tensor is stored once
    tokens = torch.from_numpy(np.fromfile(path, dtype=np.uint16).astype(np.int64))
    windows = tokens[: len(tokens) // (LENGTH + 1) * (LENGTH + 1)].view(-1, LENGTH + 1)
    with torch.no_grad():
        loss = model(windows[:, :-1], windows[:, 1:]).item()
    print(f"loss {loss:.3f} per byte in PyTorch, shifted by hand (guessing: 5.545)")
    return 0 if loss < 3.3 else 1


if __name__ == "__main__":
    sys.exit(make(sys.argv[2]) if sys.argv[1] == "make" else score(sys.argv[2], sys.argv[3]))
