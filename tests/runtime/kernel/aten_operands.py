"""Draws the operands of sample calls of ATen overloads, and keeps the samples by overload."""

import torch

LAYOUTS = ("plain", "transposed", "channels_last")
LAYOUTS_OF_ROWS = LAYOUTS + ("expanded",)  # the gradient of a sum comes with stride 0


class Maker:
    """Draws operands in one element type and stores those of two or more dims in one of LAYOUTS_OF_ROWS."""

    def __init__(self, dtype, layout, seed=0):
        self.dtype, self.layout = dtype, layout
        self.generator = torch.Generator().manual_seed(seed)

    def _laid_out(self, tensor):
        if self.layout == "channels_last" and tensor.dim() == 4:
            return tensor.contiguous(memory_format=torch.channels_last)
        if self.layout == "expanded" and tensor.dim() >= 2:
            return tensor.narrow(-1, 0, 1).expand(tensor.shape)
        if self.layout != "transposed" or tensor.dim() < 2:
            return tensor
        return tensor.transpose(-1, -2).contiguous().transpose(-1, -2)

    def _numbers(self, low, high, shape):
        if self.dtype == torch.bool:
            return torch.randint(0, 2, shape, generator=self.generator).bool()
        if not self.dtype.is_floating_point:
            first = 1 if low >= 0 else -4
            return torch.randint(first, 6, shape, generator=self.generator).to(self.dtype)
        drawn = torch.rand(shape, generator=self.generator, dtype=torch.float64)
        return (drawn * (high - low) + low).to(self.dtype)

    def x(self, *shape, low=-2.0, high=2.0):
        return self._laid_out(self._numbers(low, high, shape))

    def positive(self, *shape):
        return self.x(*shape, low=0.25, high=2.0)

    def unit(self, *shape):
        return self.x(*shape, low=0.05, high=0.95)

    def plain(self, *shape, low=-2.0, high=2.0):
        """Contiguous always: what the kernel's contract demands."""
        return self._numbers(low, high, shape)

    def like(self, tensor):
        """Values stored as `tensor` is."""
        return torch.empty_like(tensor).copy_(self._numbers(-2.0, 2.0, tuple(tensor.shape)))

    def index(self, bound, *shape):
        return self._laid_out(torch.randint(0, bound, shape, generator=self.generator))

    def mask(self, *shape):
        return self._laid_out(torch.randint(0, 2, shape, generator=self.generator).bool())


SAMPLES = {}  # overload without "aten." -> functions of a Maker
aten = torch.ops.aten


def sample(names, make):
    for name in names.split():
        SAMPLES.setdefault(name if "." in name else name + ".default", []).append(make)


def call(*args, **kwargs):
    return args, kwargs
