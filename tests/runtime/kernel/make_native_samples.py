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
            variances(dtype, x, dims)
        case("linalg_vector_norm.default", x, 2, dims)
        case("linalg_vector_norm.default", x, 1, dims, True, dtype=torch.float32)
    case("sum.default", draw(dtype, 3, n))
    case("cumsum.default", draw(dtype, n, 3), 0)
    case("sum.dim_IntList", draw(dtype, 130, n)[:, : n // 2], [0])


def variances(dtype, x, dims):
    count = x.numel() // max(1, aten.sum.dim_IntList(x, dims).numel())
    for correction in (0, 1):
        if count > correction:
            case("var.correction", x, dims, correction=correction)
    case("std.correction", x, dims, correction=0, keepdim=True)
    case("var_mean.correction", x, dims, correction=0)
    if dtype == torch.float32:  # close to each other and far from 0
        case("var.correction", (x + 2e4).contiguous(), dims, correction=0)


def equations():
    for dtype in (torch.float32, torch.float64):
        for n, columns in ((1, 1), (3, 17), (17, 64), (33, 65), (64, 130)):
            a = (draw(dtype, 2, n, n) / n + 2 * torch.eye(n)).to(dtype)
            b = draw(dtype, 2, n, columns)
            for upper in (False, True):
                case("linalg_solve_triangular.default", a, b, upper=upper)
                case("linalg_solve_triangular.default", a.mT, b.mT.contiguous().mT, upper=upper, unitriangular=True)
                case("linalg_solve_triangular.default", a, b.mT, upper=upper, left=False)
                case("linalg_solve_triangular.default", a[0], draw(dtype, 3, columns, n), upper=upper, left=False)


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
    if n > 0:
        equal_elements(dtype, n)


def equal_elements(dtype, n):
    """PyTorch leaves open which of equal elements it takes; what its CPU kernels take must be taken all the same."""
    generator = torch.Generator().manual_seed(n)
    integers = torch.randint(0, 4, (3, n), generator=generator)
    rows = integers.to(dtype)
    rows[2, ::5] = float("nan")
    for x in (rows, integers):
        for k in {min(n, 2), min(n, 16), n // 64 + 1, n // 2 + 1, n}:
            case("topk.default", x, k, -1)
            case("topk.default", x, k, -1, False)
            case("topk.default", x, k, -1, True, False)
        for descending in (False, True):
            case("sort.default", x, -1, descending)
            case("sort.stable", x, stable=True, dim=-1, descending=descending)
        for op in ("max", "min"):
            case(f"{op}.dim", x, -1)
            case(f"{op}.dim", x, 0)
            case(f"arg{op}.default", x, -1)
            case(f"arg{op}.default", x)
    case("max_pool2d_with_indices.default", rows[:2].reshape(1, 2, 1, n), [1, min(n, 3)], [1, 1])


def images(dtype, *shape):
    """One tensor in each order of elements: row by row, channels innermost, and a view with gaps."""
    yield draw(dtype, *shape)
    if len(shape) == 4:
        yield draw(dtype, *shape).to(memory_format=torch.channels_last)
    yield draw(dtype, *shape[:-1], 2 * shape[-1])[..., ::2]


def convolution(dtype, image, weight, *, bias=True, stride=1, padding=0, dilation=1, transposed=False, output_padding=0, groups=1):
    dims = len(image) - 2
    settings = ([stride] * dims, [padding] * dims, [dilation] * dims, transposed, [output_padding] * dims, groups)
    out = weight[1] * groups if transposed else weight[0]
    for x in images(dtype, *image):
        w, b = draw(dtype, *weight), draw(dtype, out) if bias else None
        case("convolution.default", x, w, b, *settings)
        y = aten.convolution(x, w, b, *settings)
        for g in (draw(dtype, *y.shape).to(memory_format=torch.channels_last) if dims == 2 else draw(dtype, *y.shape), draw(dtype).expand(y.shape)):
            case("convolution_backward.default", g, x, w, [out], *settings, [True, True, bias])
        case("convolution_backward.default", g, x, w, [out], *settings, [False, True, False])
        case("convolution_backward.default", g, x, w, [out], *settings, [True, False, False])
    case("convolution_backward.default", g, x, w.to(memory_format=torch.channels_last) if dims == 2 else w, [out], *settings, [False, True, True])


def convolutions(dtype):
    convolution(dtype, (2, 3, 9, 8), (16, 3, 7, 7), stride=2, padding=3, bias=False)
    convolution(dtype, (2, 17, 6, 5), (33, 17, 3, 3), padding=1)
    convolution(dtype, (1, 32, 5, 7), (16, 32, 1, 1), stride=2, bias=False)
    convolution(dtype, (2, 6, 9, 9), (6, 1, 3, 3), groups=6, dilation=2, padding=2)
    convolution(dtype, (2, 8, 7, 7), (12, 4, 3, 3), groups=2, stride=2)
    convolution(dtype, (3, 5, 11), (7, 5, 4), stride=3, padding=2)
    convolution(dtype, (1, 4, 5, 6, 4), (6, 4, 3, 2, 3), padding=1)
    convolution(dtype, (2, 6, 4, 5), (6, 4, 3, 3), stride=2, padding=1, output_padding=1, transposed=True)
    convolution(dtype, (2, 6, 4, 5), (6, 2, 2, 2), stride=2, groups=3, transposed=True, bias=False)
    # Places behind those that filters reach: as many as a stride, more, and more than the padding takes away.
    convolution(dtype, (1, 1, 5), (1, 1, 3), dilation=2, output_padding=1, transposed=True)
    convolution(dtype, (2, 6, 2, 3), (6, 4, 2, 2), stride=2, dilation=4, padding=1, output_padding=3, transposed=True)
    convolution(dtype, (2, 4, 3, 2), (4, 3, 1, 2), dilation=3, padding=1, output_padding=2, groups=2, transposed=True)


def batch_norms(dtype):
    for weight_dtype in {dtype, torch.float32}:
        for shape in ((5, 3), (2, 4, 600), (8, 7, 1, 1), (16, 600, 1, 1), (3, 5, 23, 9), (2, 3, 4, 5, 3)):
            weight, bias, mean, var = draw(weight_dtype, shape[1]), *(draw(weight_dtype, shape[1]) for _ in range(2)), draw(weight_dtype, shape[1]).abs() + 0.5
            for x in images(dtype, *shape):
                batch_norm(x, weight, bias, mean, var)


def batch_norm(x, weight, bias, mean, var):
    case("_native_batch_norm_legit_functional.default", x, weight, bias, mean, var, True, 0.1, 1e-5)
    case("_native_batch_norm_legit_functional.default", x, None, None, mean, var, True, 0.7, 1e-3)
    case("_native_batch_norm_legit_no_training.default", x, weight, bias, mean, var, 0.1, 1e-5)
    case("_native_batch_norm_legit.no_stats", x, weight, None, True, 0.1, 1e-5)
    saved, rstd = aten._native_batch_norm_legit_functional(x, weight, bias, mean, var, True, 0.1, 1e-5)[1:3]
    g = draw(x.dtype, *x.shape)
    case("native_batch_norm_backward.default", g, x, weight, mean, var, saved, rstd, True, 1e-5, [True, True, True])
    case("native_batch_norm_backward.default", g, x, weight, mean, var, saved, rstd, False, 1e-5, [True, True, True])
    case("native_batch_norm_backward.default", draw(x.dtype).expand(x.shape), x, weight, mean, var, None, None, False, 1e-5, [True, False, False])


def pooling(dtype):
    for size, stride, padding, dilation, ceil in (
        (3, 2, 1, 1, False),
        (3, 2, 1, 1, True),
        (2, [], 0, 1, False),
        (3, 1, 1, 2, False),
        ((2, 3), (3, 1), (1, 0), 1, True),
    ):
        sizes = [list(v) if isinstance(v, tuple) else v if v == [] else [v] * 2 for v in (size, stride, padding, dilation)]
        for shape in ((2, 3, 9, 8), (3, 7, 10)):
            for x in images(dtype, *shape):
                case("max_pool2d_with_indices.default", x, *sizes, ceil)
                y, places = aten.max_pool2d_with_indices(x, *sizes, ceil)
                case("max_pool2d_with_indices_backward.default", draw(dtype, *y.shape), x, *sizes, ceil, places)
                if dilation == 1:
                    average(x, sizes[:3], ceil)
    x = draw(dtype, 2, 3, 5, 6, 7)
    if dtype == torch.float32:  # all that PyTorch has it in
        case("avg_pool3d.default", x, [2, 3, 2], [1, 2, 2], [1, 1, 0], True, False)
    case("max_pool3d_with_indices.default", x, [2, 3, 2], [1, 2, 2], [1, 1, 0])
    for x in images(dtype, 2, 3, 9, 8):
        for size in ([1, 1], [4, 3], [9, 8], [11, 5]):
            case("_adaptive_avg_pool2d.default", x, size)
            case("_adaptive_avg_pool2d_backward.default", draw(dtype, 2, 3, *size), x)
            case("adaptive_max_pool2d.default", x, size)
            case("adaptive_max_pool2d_backward.default", draw(dtype, 2, 3, *size), x, aten.adaptive_max_pool2d(x, size)[1])
    x = draw(dtype, 1, 1, 4, 4)
    x[0, 0, 1, 1:3] = float("nan")
    x[0, 0, 2:] = -float("inf")
    case("max_pool2d_with_indices.default", x, [2, 2], [1, 1])


def average(x, sizes, ceil):
    for counts, divisor in ((True, None), (False, None), (True, 5)):
        case("avg_pool2d.default", x, *sizes, ceil, counts, divisor)
        g = draw(x.dtype, *aten.avg_pool2d(x, *sizes, ceil, counts, divisor).shape)
        case("avg_pool2d_backward.default", g, x, *sizes, ceil, counts, divisor)


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


def not_finite(dtype):
    """A NaN shows in all statistics of its channel."""
    for shape in ((5, 3), (3, 5, 4, 2)):
        for x in images(dtype, *shape):
            x[2, 1] = float("nan")
            mean, var = draw(dtype, shape[1]), draw(dtype, shape[1]).abs() + 0.5
            case("_native_batch_norm_legit_functional.default", x, None, None, mean, var, True, 0.1, 1e-5)


def main(path):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    for dtype, lengths in LENGTHS.items():
        for n in lengths:
            for group in (pointwise, reductions, norms, indices):
                group(dtype, n)
        for group in (convolutions, batch_norms, pooling):
            group(dtype)
    equations()
    numbers()
    for dtype in LENGTHS:
        not_finite(dtype)
    with open(path, "w", encoding="ascii") as file:
        file.write("\n".join(make_aten_cases.OUT) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
