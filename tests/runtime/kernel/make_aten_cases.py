"""Writes test cases for the aten provider: ops, inputs and what PyTorch itself computes.

The file is text: "case NAME OP", one line per argument, one line per result, "end". Memory is written as hexadecimal bytes.
"""

import sys

import torch
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

NAMES = {
    torch.float32: "f32",
    torch.bfloat16: "bf16",
    torch.float16: "f16",
    torch.float64: "f64",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.bool: "bool",
    torch.uint8: "u8",
}
EXPORT_DTYPES = {torch.int32: 4, torch.int64: 5, torch.float16: 6, torch.float32: 7, torch.float64: 8, torch.bool: 12, torch.bfloat16: 13}
EXPORT_FORMATS = {torch.contiguous_format: 1, torch.channels_last: 2, torch.preserve_format: 4}
OUT = []


def numbers(values):
    return ",".join(str(v) for v in values) if len(values) else "-"


def tensor_text(t):
    """dtype, sizes, strides and the memory from the first to behind the last element."""
    extent = 0 if t.numel() == 0 else 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride()))
    flat = torch.as_strided(t, (extent,), (1,), t.storage_offset()).contiguous()
    data = flat.view(torch.uint8).numpy().tobytes().hex() if extent else ""
    return f"{NAMES[t.dtype]} {numbers(t.shape)} {numbers(t.stride())} {data or '-'}"


def argument(name, value):
    if value is None:
        OUT.append(f"none {name}")
    elif isinstance(value, torch.Tensor):
        OUT.append(f"tensor {name} {tensor_text(value)}")
    elif isinstance(value, bool):
        OUT.append(f"bool {name} {int(value)}")
    elif isinstance(value, int):
        OUT.append(f"int {name} {value}")
    elif isinstance(value, float):
        OUT.append(f"float {name} {value.hex()}")
    elif isinstance(value, torch.dtype):
        OUT.append(f"dtype {name} {EXPORT_DTYPES[value]}")
    elif isinstance(value, torch.memory_format):
        OUT.append(f"format {name} {EXPORT_FORMATS[value]}")
    elif isinstance(value, torch.layout):
        OUT.append(f"layout {name} 7")
    elif isinstance(value, str):
        OUT.append(f"string {name} {value}")
    elif isinstance(value, torch.device):
        OUT.append(f"device {name}")
    elif value and any(isinstance(v, torch.Tensor) for v in value):
        OUT.append(f"tensors {name} {len(value)}")
        for v in value:
            argument("item", v)
    elif value and isinstance(value[0], bool):
        OUT.append(f"bools {name} {numbers([int(v) for v in value])}")
    else:
        OUT.append(f"ints {name} {numbers(value)}")


def case(name, op, *args, **kwargs):
    overload = getattr(getattr(torch.ops.aten, op.split(".")[0]), op.split(".")[1])
    with torch.inference_mode():
        write_case(name, op, overload, args, kwargs, overload(*args, **kwargs))


def write_case(name, op, overload, args, kwargs, results):
    formals = [a.name for a in overload._schema.arguments]
    OUT.append(f"case {name} aten.{op}")
    for formal, value in list(zip(formals, args)) + list(kwargs.items()):
        argument(formal, value)
    for result in results if isinstance(results, (tuple, list)) else [results]:
        OUT.append(f"out {tensor_text(result)}" if isinstance(result, torch.Tensor) else "out none")
    OUT.append("end")


def transformer_cases():
    x, w, b = torch.randn(6, 40), torch.randn(40, 24), torch.randn(24)
    case("mm", "mm.default", x, w)
    case("mm_transposed", "mm.default", x, torch.randn(24, 40).t())
    case("mm_large", "mm.default", torch.randn(128, 256), torch.randn(256, 96))
    case("bmm", "bmm.default", torch.randn(3, 5, 7), torch.randn(3, 7, 4))
    case("addmm", "addmm.default", b, x, w)
    case("add", "add.Tensor", x, torch.randn(6, 40))
    case("add_alpha_broadcast", "add.Tensor", x, torch.randn(40), alpha=2)
    case("mul_number", "mul.Tensor", x, 0.125)
    case("mul_integer", "mul.Tensor", x, 3)
    case("pow_scalar", "pow.Tensor_Scalar", x, 2)
    case("rsqrt", "rsqrt.default", x.abs() + 1)
    case("mean_dim", "mean.dim", x, [-1], True)
    case("sum_dims", "sum.dim_IntList", x, [0], False)
    case("silu", "silu.default", x)
    case("gelu", "gelu.default", x)
    case("gelu_backward", "gelu_backward.default", x, torch.randn(6, 40))
    case("softmax", "_softmax.default", torch.randn(4, 33), -1, False)
    case("log_softmax", "_log_softmax.default", torch.randn(4, 33), 1, False)
    index = torch.tensor([[3, 0, 7], [7, 2, 1]])
    case("embedding", "embedding.default", torch.randn(8, 10), index)
    case("embedding_backward", "embedding_dense_backward.default", torch.randn(2, 3, 10), index, 8, -1, False)
    y, mean, rstd = torch.ops.aten.native_layer_norm(x, [40], torch.randn(40), torch.randn(40), 1e-5)
    case("layer_norm", "native_layer_norm.default", x, [40], torch.randn(40), torch.randn(40), 1e-5)
    for mask in ([True, True, True], [True, False, False], [False, True, True]):
        case(
            "layer_norm_backward_" + "".join("ny"[m] for m in mask),
            "native_layer_norm_backward.default",
            torch.randn(6, 40),
            x,
            [40],
            mean,
            rstd,
            torch.randn(40),
            torch.randn(40),
            mask,
        )
    logits, labels = torch.randn(5, 11).log_softmax(1), torch.tensor([1, 10, -100, 0, 3])
    case("nll_loss", "nll_loss_forward.default", logits, labels, None, 1, -100)
    case("where", "where.self", torch.randn(3, 4) > 0, torch.randn(3, 4), torch.randn(4))


def attention_cases():
    for length, dtype in ((16, torch.float32), (48, torch.float32), (32, torch.bfloat16)):
        q, k, v = (torch.randn(2, length, 4, 8, dtype=dtype).transpose(1, 2) for _ in range(3))
        flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        out, lse = flash(q, k, v, 0.0, True)
        label = f"{length}_{NAMES[dtype]}"
        case("flash_" + label, "_scaled_dot_product_flash_attention_for_cpu.default", q, k, v, 0.0, True)
        case("flash_backward_" + label, "_scaled_dot_product_flash_attention_for_cpu_backward.default", torch.randn_like(out), q, k, v, out, lse, 0.0, True)


def shape_and_type_cases():
    x = torch.randn(3, 4)
    case("cat", "cat.default", [x, torch.randn(3, 2), torch.randn(3, 5)], 1)
    case("index", "index.Tensor", torch.randn(5, 6, 2), [None, torch.tensor([4, 0, 5])])
    case("index_two", "index.Tensor", torch.randn(5, 6), [torch.tensor([4, 0]), torch.tensor([1, 5])])
    case("full", "full.default", [2, 3], 7.5, dtype=torch.float32, device=torch.device("cpu"), pin_memory=False)
    case("arange", "arange.default", 9, device=torch.device("cpu"), pin_memory=False)
    case("arange_float", "arange.start_step", 0, 12, 2, dtype=torch.float32)
    case("to_bf16", "_to_copy.default", x, dtype=torch.bfloat16)
    case("to_i64", "_to_copy.default", x, dtype=torch.int64)
    case("clone_transposed", "clone.default", x.t())
    case("expand_clone", "clone.default", x[:, :1].expand(3, 4))
    case("empty_sum", "sum.dim_IntList", torch.randn(0, 4), [0], False)
    case("empty_add", "add.Tensor", torch.randn(0, 4), torch.randn(0, 4))
    case("scalar_mean", "mean.default", x)
    case("any", "any.dim", x > 1, 1)


def vision_and_half_cases():
    image, filters = torch.randn(2, 3, 9, 9), torch.randn(5, 3, 3, 3)
    arguments = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    case("convolution", "convolution.default", image, filters, torch.randn(5), *arguments)
    case("convolution_backward", "convolution_backward.default", torch.randn(2, 5, 9, 9), image, filters, [5], *arguments, [True, True, False])
    scale, shift, mean, variance = torch.randn(3), torch.randn(3), torch.randn(3), torch.rand(3)
    case("batch_norm", "_native_batch_norm_legit_functional.default", image, scale, shift, mean, variance, True, 0.1, 1e-5)
    out, saved, rstd = torch.ops.aten._native_batch_norm_legit_functional(image, scale, shift, mean, variance, True, 0.1, 1e-5)[:3]
    case(
        "batch_norm_backward",
        "native_batch_norm_backward.default",
        torch.randn_like(out),
        image,
        scale,
        mean,
        variance,
        saved,
        rstd,
        True,
        1e-5,
        [True, True, True],
    )
    bf16 = torch.bfloat16
    case("mm_bf16", "mm.default", torch.randn(32, 64, dtype=bf16), torch.randn(64, 48, dtype=bf16))
    case("gelu_bf16", "gelu.default", torch.randn(32, 64, dtype=bf16))
    case("silu_bf16", "silu.default", torch.randn(7, 9, dtype=bf16))


class Capture(TorchDispatchMode):
    """Writes a case for every distinct functional op that runs in it."""

    def __init__(self, label):
        super().__init__()
        self.label, self.seen = label, set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        results = func(*args, **kwargs)
        aliases = any(a.alias_info is not None for a in (*func._schema.arguments, *func._schema.returns))
        # empty has no values to compare; eager batch norm changes its buffers and _unsafe_view is a view, both behind their schemas.
        if any(name in str(func) for name in ("aten.empty", "aten.new_empty", "native_batch_norm.default", "_unsafe_view")):
            return results
        if func.namespace != "aten" or aliases or torch.Tag.nondeterministic_seeded in func.tags:
            return results
        start, op = len(OUT), str(func).removeprefix("aten.")
        with torch.no_grad():
            write_case(f"{self.label}_{len(self.seen)}", op, func, args, kwargs, results)
        key = tuple(" ".join(line.split()[:5]) for line in OUT[start + 1 :]) + (op,)
        if key in self.seen:
            del OUT[start:]
        self.seen.add(key)
        return results


class Block(torch.nn.Module):
    """A transformer of one layer; `modern` means rotary halves, RMS norm and a gated MLP."""

    def __init__(self, modern):
        super().__init__()
        self.modern = modern
        self.embedding = torch.nn.Embedding(32, 16)
        self.norm = torch.nn.RMSNorm(16) if modern else torch.nn.LayerNorm(16)
        self.qkv, self.out = torch.nn.Linear(16, 48, bias=not modern), torch.nn.Linear(16, 16)
        self.up, self.down = torch.nn.Linear(16, 32), torch.nn.Linear(32, 16)

    def forward(self, tokens):
        x = self.embedding(tokens)
        q, k, v = (t.reshape(2, 8, 2, 8).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1))
        if self.modern:
            angle = torch.arange(8, dtype=torch.float32)[:, None] * torch.tensor([1.0, 0.5, 0.25, 0.1] * 2)
            q, k = (t * angle.cos() + torch.cat((-t[..., 4:], t[..., :4]), -1) * angle.sin() for t in (q, k))
            q, k = q.to(v.dtype), k.to(v.dtype)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=self.modern)
        x = x + self.out(attended.transpose(1, 2).reshape(2, 8, 16))
        hidden = self.up(self.norm(x))
        x = x + self.down(F.silu(hidden) * hidden if self.modern else F.gelu(hidden))
        logits = x @ self.embedding.weight.t()
        return F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), tokens[:, 1:].flatten())


class Experts(torch.nn.Module):
    """Top-2 routing by one-hot counting and index operations."""

    def __init__(self):
        super().__init__()
        self.gate, self.weight = torch.nn.Linear(8, 4, bias=False), torch.nn.Parameter(torch.randn(4, 8, 8) * 0.3)

    def forward(self, x):
        weights, chosen = self.gate(x).softmax(-1).topk(2, -1)
        hot = F.one_hot(chosen.flatten(), 4)
        place = ((hot.cumsum(0) - 1) * hot).sum(-1)
        slot = chosen.flatten() * x.shape[0] * 2 + place
        spread = torch.zeros(4 * x.shape[0] * 2, 8).index_put((slot,), x.repeat_interleave(2, 0))
        mixed = torch.bmm(spread.view(4, -1, 8), self.weight).flatten(0, 1)[slot]
        return (mixed.view(-1, 2, 8) * weights[..., None]).sum(1).pow(2).mean()


class Convolutional(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution, self.norm = torch.nn.Conv2d(3, 4, 3, stride=2, bias=False), torch.nn.BatchNorm2d(4)
        self.head = torch.nn.Linear(4, 5)

    def forward(self, image):
        x = F.relu(self.norm(self.convolution(image)))
        x = F.max_pool2d(x, 3, 2, 1)
        return F.cross_entropy(self.head(F.adaptive_avg_pool2d(x, 1).flatten(1)), torch.tensor([1, 3]))


def model_cases():
    tokens = torch.randint(0, 32, (2, 8))
    models = {
        "gpt": (Block(False), tokens),
        "llama": (Block(True), tokens),
        "llama_bf16": (Block(True).bfloat16(), tokens),
        "experts": (Experts(), torch.randn(6, 8)),
        "vision": (Convolutional(), torch.randn(2, 3, 12, 12)),
    }
    for label, (model, batch) in models.items():
        with Capture(label):
            model(batch).backward()


def main(path):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    for group in (transformer_cases, attention_cases, shape_and_type_cases, vision_and_half_cases, model_cases):
        group()
    with open(path, "w", encoding="ascii") as file:
        file.write("\n".join(OUT) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
