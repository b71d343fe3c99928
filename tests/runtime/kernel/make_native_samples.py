"""Runs ATen's operators in PyTorch on lengths around the blocks of native kernels, and on views, and writes what they must give.

    make_native_samples.py SAMPLES.txt

The file has the form of make_aten_cases.py's. make_aten_samples.py has every operator, on small operands.
"""

import sys

import torch

import make_aten_cases

# Empty, one, below and above a vector, a fold's lanes and a block.
LENGTHS = {torch.float32: (0, 1, 3, 17, 33, 255, 257, 513, 1030), torch.bfloat16: (1, 33, 257, 513)}
aten = torch.ops.aten


def draw(dtype, *shape):
    return (torch.rand(shape) * 4 - 2).to(dtype)


def case(op, *args, **kwargs):
    overload = getattr(getattr(aten, op.split(".")[0]), op.split(".")[1])
    results = overload(*args, **kwargs)
    results = [r.clone() if isinstance(r, torch.Tensor) else r for r in (results if isinstance(results, (tuple, list)) else [results])]
    make_aten_cases.write_case(str(len(make_aten_cases.OUT)), op, overload, args, kwargs, results)


def pointwise(dtype, n):
    x, y = draw(dtype, n), draw(dtype, n)
    for op in ("neg", "exp", "tanh", "silu", "gelu", "sigmoid", "relu", "cos", "erf"):
        case(op + ".default", x)
    case("log.default", x.abs() + 0.5)
    case("rsqrt.default", x.abs() + 0.5)
    case("silu_backward.default", x, y)
    case("gelu_backward.default", x, y)
    case("gelu_backward.default", x, y, approximate="tanh")
    case("add.Tensor", x, y, alpha=2)
    case("mul.Tensor", x, 0.5)
    case("where.self", x > 0, x, y)
    case("le.Tensor", x, y)
    rows = draw(dtype, 5, n)
    case("mul.Tensor", rows, x)
    case("mul.Tensor", rows, draw(dtype, 5, 1))
    case("add.Tensor", rows.t(), draw(dtype, n, 5))
    case("add.Tensor", draw(dtype, 3, n + 2)[:, 1:-1], draw(dtype, 3, 2 * n)[:, ::2])
    case("clone.default", rows.t(), memory_format=torch.contiguous_format)
    case("_to_copy.default", rows, dtype=torch.float32 if dtype == torch.bfloat16 else torch.bfloat16)
    case("cat.default", [rows, draw(dtype, 5, 3), draw(dtype, 5, n)[:, : n // 2]], -1)
    case("constant_pad_nd.default", rows, [2, 1], 0.5)


def reductions(dtype, n):
    for shape, dims in (((n,), [0]), ((5, n), [1]), ((n, 5), [0]), ((3, n, 2), [0, 2]), ((3, n, 2), [1])):
        x = draw(dtype, *shape)
        case("sum.dim_IntList", x, dims)
        case("sum.dim_IntList", x, dims, True, dtype=torch.float32)
        if n > 0:
            case("mean.dim", x, dims)
            case("amax.default", x, dims)
    case("sum.default", draw(dtype, 3, n))
    case("cumsum.default", draw(dtype, n, 3), 0)
    case("sum.dim_IntList", draw(dtype, 130, n)[:, : n // 2], [0])


def norms(dtype, n):
    x, weight, bias = draw(dtype, 70, n), draw(dtype, n), draw(dtype, n)
    for op in ("_softmax", "_log_softmax"):
        y = getattr(aten, op)(x[:4], -1, False)
        case(op + ".default", x[:4], -1, False)
        case(op + "_backward_data.default", draw(dtype, 4, n), y, -1, dtype)
        # Equal gradients, as of a sum; with y of a softmax what is left would be roundings.
        case(op + "_backward_data.default", draw(dtype, 4, 1).expand(4, n), draw(dtype, 4, n), -1, dtype)
        case(op + "_backward_data.default", draw(dtype).expand(4, n), draw(dtype, 4, n), 0, dtype)
    case("_softmax.default", draw(dtype, 3, n, 2), 1, False)
    if n == 0:
        return
    y, mean, rstd = aten.native_layer_norm(x, [n], weight, bias, 1e-5)
    case("native_layer_norm.default", x, [n], weight, bias, 1e-5)
    case("_fused_rms_norm.default", x, [n], weight, 1e-5)
    if dtype == torch.float32 and n > 1:  # in 16 bits PyTorch rounds its sums over rows; of one element is left what roundings leave
        case("native_layer_norm_backward.default", draw(dtype, 70, n), x, [n], mean, rstd, weight, bias, [True, True, True])
        case("native_layer_norm_backward.default", draw(dtype, 70, n), x, [n], mean, rstd, None, None, [True, False, False])
        case("native_layer_norm_backward.default", draw(dtype).expand(70, n), x, [n], mean, rstd, weight, bias, [True, True, True])
        rms_norm_backward(x, weight)
    if dtype != torch.float32:  # in 16 bits PyTorch rounds the sum of losses in between
        return
    target = torch.randint(0, n, (70,))
    target[3] = -100
    total = aten.nll_loss_forward(x, target, None, 1, -100)[1]
    case("nll_loss_forward.default", x, target, None, 1, -100)
    case("nll_loss_backward.default", draw(dtype), x, target, None, 1, -100, total)


def rms_norm_backward(x, weight):
    """PyTorch has no kernel of it for the CPU, but the gradient."""
    n = x.shape[1]
    x, weight, g = x.clone().requires_grad_(), weight.clone().requires_grad_(), draw(x.dtype, *x.shape)
    rstd = (x.double().pow(2).mean(-1, True) + 1e-5).rsqrt()
    (x.double() * rstd * weight.double()).backward(g.double())
    args = (g, x.detach(), [n], rstd.detach().float(), weight.detach(), [True, True])
    overload = aten._fused_rms_norm_backward.default
    make_aten_cases.write_case(str(len(make_aten_cases.OUT)), "_fused_rms_norm_backward.default", overload, args, {}, [x.grad, weight.grad])


def indices(dtype, n):
    table = draw(dtype, 9, n)
    places = torch.randint(0, 9, (4, 5))
    case("embedding.default", table, places)
    if dtype == torch.float32:  # in 16 bits PyTorch rounds every sum
        case("embedding_dense_backward.default", draw(dtype, 4, 5, n), places, 9, 2, False)
    case("index_select.default", table, 0, places[0])
    case("index.Tensor", table, [places])
    case("index_put.default", table, [torch.tensor([4, 0, 8])], draw(dtype, 3, n))
    if n > 0:
        case("gather.default", table, 1, torch.randint(0, n, (9, 4)))
    if n > 0 and dtype == torch.float32:  # in 16 bits there are equal ones, of which PyTorch takes any
        case("topk.default", table, min(n, 7), -1)
        case("sort.default", table, -1, True)


def numbers():
    """Start and step are cut to integers, where the result has them; large integers are exact."""
    for dtype in (torch.int64, torch.int32, torch.float32):
        case("arange.start_step", 0.5, 5.9, 1.5, dtype=dtype)
        case("arange.start_step", 9.9, -3.2, -2.7, dtype=dtype)
        case("arange.start", 1.5, 7.9, dtype=dtype)
        case("arange.start", -2.5, 4, dtype=dtype)
    places = torch.tensor([[0, 3], [2, 1]])
    case("scatter.value", torch.zeros(3, 4, dtype=torch.int64), 1, places, 2**53 + 1)
    case("scatter.value", torch.zeros(3, 4, dtype=torch.int64), 0, places[:, :1], -(2**63))
    case("full.default", [3], 2**62 + 1, dtype=torch.int64)


def main(path):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    for dtype, lengths in LENGTHS.items():
        for n in lengths:
            for group in (pointwise, reductions, norms, indices):
                group(dtype, n)
    numbers()
    with open(path, "w", encoding="ascii") as file:
        file.write("\n".join(make_aten_cases.OUT) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
