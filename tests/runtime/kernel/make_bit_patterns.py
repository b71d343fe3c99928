"""Runs ATen's element-wise operators in PyTorch on random bit patterns, and writes what native kernels must give.

    make_bit_patterns.py SAMPLES.txt

The file has the form of make_aten_cases.py's. Operands are random bits, random numbers of ordinary size, and every pair of special ones: zeros,
denormal, the largest, infinite, NaN, where functions overflow. Where a result is rounded, a line `exact` has it as f64 gives it of the same operands.
"""

import sys

import torch

import make_aten_cases

RANDOM = 384  # of each kind
SIGNED = {torch.float32: torch.int32, torch.float64: torch.int64, torch.bfloat16: torch.int16, torch.float16: torch.int16}
SPECIAL = (0.0, 1.0, 0.5, 3.0, 20.5, 88.5, 104.0, 1e9, 2.0**100, float("inf"))
aten = torch.ops.aten


def bits(dtype, n):
    if dtype in SIGNED:
        width = torch.iinfo(SIGNED[dtype]).bits
        return torch.randint(-(2 ** (width - 1)), 2 ** (width - 1) - 1, (n,), dtype=torch.int64).to(SIGNED[dtype]).view(dtype)
    if dtype == torch.bool:
        return torch.randint(0, 2, (n,)).bool()
    return torch.randint(-(2**63), 2**63 - 1, (n,)).to(dtype)


def ordinary(dtype, n):
    if dtype in SIGNED:
        return (torch.randn(n, dtype=torch.float64) * torch.exp2(torch.randint(-8, 8, (n,)))).to(dtype)
    return torch.randint(0, 2, (n,)).bool() if dtype == torch.bool else torch.randint(-9, 9, (n,)).to(dtype)


def special(dtype):
    if dtype == torch.bool:
        return torch.tensor([False, True])
    if dtype not in SIGNED:
        limits = torch.iinfo(dtype)
        return torch.tensor([0, 1, -1, 2, 7, limits.min, limits.max], dtype=dtype)
    limits = torch.finfo(dtype)
    positive = (*SPECIAL, limits.max, limits.tiny, limits.smallest_normal / 4, float(torch.tensor(1, dtype=SIGNED[dtype]).view(dtype)))
    return torch.tensor([*positive, *(-x for x in positive), float("nan")], dtype=torch.float64).to(dtype)


def operands(dtype, count):
    """`count` tensors of one length."""
    first = special(dtype)
    grid = (first.repeat_interleave(len(first)), first.repeat(len(first)), first.flip(0).repeat(len(first)))
    return [torch.cat([bits(dtype, RANDOM), ordinary(dtype, RANDOM), grid[i]]) for i in range(count)]


def results_of(overload, args, kwargs):
    results = overload(*args, **kwargs)
    return list(results) if isinstance(results, (tuple, list)) else [results]


def exact_of(overload, args, kwargs, results):
    """The results as f64 gives them of the same operands; PyTorch's own where the first of them is bool."""
    dtype = results[0].dtype
    first = next(a for a in args if isinstance(a, torch.Tensor))
    if first.dtype == torch.bool or not dtype.is_floating_point:
        return [result.double() for result in results]
    widened = [a.to(dtype).double() if isinstance(a, torch.Tensor) and a.dtype != torch.bool else a for a in args]
    return results_of(overload, widened, kwargs)


def case(op, *args, **kwargs):
    """Nothing where PyTorch does not compute the operator in this type."""
    overload = getattr(getattr(aten, op.partition(".")[0]), op.partition(".")[2] or "default")
    try:
        results = results_of(overload, args, kwargs)
        exact = exact_of(overload, args, kwargs, results)
    except (RuntimeError, NotImplementedError):
        return
    lines = [f"exact {make_aten_cases.tensor_text(e)}" for r, e in zip(results, exact, strict=True) if r.is_floating_point()]
    make_aten_cases.write_case(str(len(make_aten_cases.OUT)), op if "." in op else op + ".default", overload, args, kwargs, results)
    make_aten_cases.OUT[-1:-1] = lines


def of_one(x):
    for op in ("abs ceil cos erf exp floor gelu hardtanh isfinite isinf isnan leaky_relu log log_sigmoid_forward logical_not bitwise_not neg").split():
        case(op, x)
    for op in ("reciprocal relu round rsqrt sgn sigmoid sign silu sin softplus sqrt tanh trunc").split():
        case(op, x)
    case("gelu", x, approximate="tanh")
    for exponent in (-2, -1, -0.5, 0.5, 1, 2, 3, 1.75):
        case("pow.Tensor_Scalar", x, exponent)
    case("pow.Scalar", 2.5, x)


def with_numbers(x, number):
    case("clamp", x, -number, number)
    if x.is_floating_point():
        nan = float("nan")
        for bounds in ((nan, number), (-number, nan), (nan,), (None, nan), (nan, float("inf"))):
            case("clamp", x, *bounds)
        case("hardtanh", x, nan, number)
        case("hardtanh", x, -number, nan)
        case("clamp_min", x, nan)
        case("clamp_max", x, nan)
    for op in ("clamp_max", "clamp_min", "add.Scalar", "sub.Scalar", "mul.Scalar", "div.Scalar", "rsub.Scalar", "floor_divide.Scalar"):
        case(op, x, number)
    for op in ("eq", "ge", "gt", "le", "lt", "ne", "bitwise_and", "bitwise_or", "bitwise_xor"):
        case(op + ".Scalar", x, number)
    for mode in ("floor", "trunc"):
        case("div.Scalar_mode", x, number, rounding_mode=mode)


def of_two(x, y):
    for op in ("add", "sub", "mul", "div", "rsub", "eq", "ge", "gt", "le", "lt", "ne", "bitwise_and", "bitwise_or", "bitwise_xor", "clamp_max", "clamp_min"):
        case(op + ".Tensor", x, y)
    for op in ("maximum", "minimum", "pow.Tensor_Tensor", "logical_and", "logical_or", "logical_xor"):
        case(op, x, y)
    for op in ("gelu_backward", "silu_backward", "sigmoid_backward", "tanh_backward"):
        case(op, x, y)
    case("gelu_backward", x, y, approximate="tanh")
    # PyTorch adds a product without rounding it, so that infinity and a product that overflows are not NaN.
    case("add.Tensor", x, y / 2 if y.is_floating_point() else y, alpha=2)
    case("threshold_backward", x, y, 0)
    # Of NaN it gives the gradient or 0, depending on where in memory an element is.
    case("hardtanh_backward", x, torch.nan_to_num(y) if y.is_floating_point() else y, -1, 1)
    case("leaky_relu_backward", x, y, 0.01, False)
    case("softplus_backward", x, y, 1, 20)
    case("log_sigmoid_backward", x, y, torch.exp(-y.abs()) if y.is_floating_point() else y)
    # The processor refuses to divide the smallest integer by -1.
    divisor = y if y.is_floating_point() else torch.where((y == 0) | (y == -1), torch.ones_like(y), y)
    case("floor_divide", x, divisor)
    for mode in ("floor", "trunc"):
        case("div.Tensor_mode", x, divisor, rounding_mode=mode)


def of_three(x, y, z):
    mask = torch.arange(len(x)) % 3 == 0
    case("addcmul", torch.nan_to_num(x) if x.is_floating_point() else x, y, z, value=2)
    case("addcdiv", x, y, z, value=2)
    case("where.self", mask, x, y)
    case("where.ScalarOther", mask, x, 2)
    case("where.ScalarSelf", mask, 2, x)
    case("where.Scalar", mask, 1, 2)
    case("masked_fill.Scalar", x, mask, 1)
    case("masked_fill.Tensor", x, mask, y[3])
    case("native_dropout_backward", x, mask, 2.0)


def main(path):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    for dtype in (*SIGNED, torch.int64, torch.bool):
        x, y, z = operands(dtype, 3)
        of_one(x)
        with_numbers(x, 3 if dtype not in SIGNED else 1.5)
        of_two(x, y)
        of_three(x, y, z)
    with open(path, "w", encoding="ascii") as file:
        file.write("\n".join(make_aten_cases.OUT) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
