"""What the values of a tensor say about the rule that it was drawn by.

`contradicts` refutes a rule; `derive` reads one from the values. Zeros, ones and constants are exact.
For normal and uniform rules each test below errs on a sound tensor with probability at most ALPHA:

- scale: the sum of squares against its chi-square distribution (normal); the extreme values against
  their distribution. A std off by the factor 1.5 is found from 300 elements
  on, a bound off by 1.5 from 60, a std off by 50 from 5;
- mean; range; shape of the distribution by the Dvoretzky-Kiefer-Wolfowitz inequality;
- independence: equal rows, a row of zeros, many zeros, rows or columns of a matrix whose cosines are not those of
  random vectors (orthogonal, low rank, trained), from 16 rows and columns on.

Large tensors are sampled evenly. What these tests cannot see is not refuted.
"""

import math

import torch

ALPHA = 1e-7
DEVIATIONS = 5.33  # of a normal variable with probability ALPHA to be further out, on both sides

_SHAPE_SAMPLE = 1 << 16
_MOMENT_SAMPLE = 1 << 20
_DERIVE_FROM = 256  # elements; fewer cannot tell normal from uniform


def contradicts(tensor, rule):
    """Whether the values of `tensor` refute `rule` (a dict as in dcc.json)."""
    if "zero_row" in rule:
        row, rest = rule["zero_row"], {k: v for k, v in rule.items() if k != "zero_row"}
        return bool(tensor.detach()[row].any()) or contradicts(without_row(tensor, row), rest)
    kind = rule["kind"]
    if kind in ("zeros", "ones", "constant"):
        value = {"zeros": 0, "ones": 1}.get(kind, rule.get("value"))
        return not bool((tensor == torch.tensor(value, dtype=tensor.dtype)).all())
    if not tensor.is_floating_point():
        return True
    if kind == "normal":
        refuted = _not_normal(tensor, rule["mean"], rule["std"])
    else:
        refuted = _not_uniform(tensor, rule["low"], rule["high"])
    return refuted or _is_structured(tensor)


def derive(tensor):
    """The rule that the values show: a constant, or a symmetric normal or uniform; None if neither
    or not decidable."""
    first = tensor.detach().flatten()[0]
    if bool((tensor == first).all()):
        value = float(first)
        names = {0.0: {"kind": "zeros"}, 1.0: {"kind": "ones"}}
        return names.get(value, {"kind": "constant", "value": value}) if math.isfinite(value) else None
    if tensor.numel() < _DERIVE_FROM or not tensor.is_floating_point():
        return None
    sample = _evenly(tensor, _MOMENT_SAMPLE)
    std, count = float(sample.square().mean().sqrt()), tensor.numel()
    if not math.isfinite(std):
        return None
    bound = float(tensor.detach().abs().max()) * (1 + 1 / count)
    normal = {"kind": "normal", "mean": 0.0, "std": _rounded(std, std * 2 / math.sqrt(2 * sample.numel()))}
    uniform = {"kind": "uniform", "low": -bound, "high": bound}
    fitting = [rule for rule in (normal, uniform) if not contradicts(tensor, rule)]
    return fitting[0] if len(fitting) == 1 else None


def lone_zero_row(tensor):
    """Index of the only row (entry of the first dim) of zeros, as an embedding's padding leaves it; None if there is none, or several."""
    if tensor.dim() < 2 or tensor.shape[0] < 2 or tensor.numel() == 0:
        return None
    rows = _zero_rows(tensor)
    return rows[0] if len(rows) == 1 else None


def without_row(tensor, row):
    """A copy of `tensor` that lacks one entry of the first dim."""
    tensor = tensor.detach()
    return torch.cat([tensor[:row], tensor[row + 1 :]])


def _zero_rows(tensor):
    return (tensor.detach() == 0).flatten(1).all(dim=1).nonzero().flatten().tolist()


def _rounded(value, allowed):
    """`value` with the fewest digits, at most three, that move it by no more than `allowed`."""
    for digits in (1, 2):
        short = float(f"{value:.{digits}g}")
        if abs(short - value) <= allowed:
            return short
    return float(f"{value:.3g}")


def _evenly(tensor, most):
    """At most `most` values in fp64, evenly spaced."""
    flat = tensor.detach().flatten()
    return flat[:: max(1, -(-flat.numel() // most))].double()


def _not_normal(tensor, mean, std):
    if not std > 0:
        return True
    scores = (_evenly(tensor, _MOMENT_SAMPLE) - mean) / std
    count = scores.numel()
    if not abs(float(scores.mean())) <= DEVIATIONS / math.sqrt(count):
        return True
    if _chi_square_tail(float(scores.square().sum()), count) < ALPHA:
        return True
    furthest = max(1e-9, *(abs(float(edge) - mean) / std for edge in tensor.detach().aminmax()))
    beyond = math.erfc(furthest / math.sqrt(2))  # probability of one value further out
    if tensor.numel() * beyond < ALPHA:
        return True
    # Not in 16 bits: there torch draws from 256 uniform values, none of them beyond 3.3 deviations.
    if tensor.dtype.itemsize > 2 and tensor.numel() * math.log1p(-beyond) < math.log(ALPHA):
        return True
    return _far_from(lambda x: torch.special.ndtr((x - mean) / std), 0.4 / std, tensor)


def _chi_square_tail(total, count):
    """Probability of a sum of `count` squares at least as far out, on its side."""
    if count > 1000:  # Wilson and Hilferty
        deviation = ((total / count) ** (1 / 3) - 1 + 2 / (9 * count)) / math.sqrt(2 / (9 * count))
        return math.erfc(abs(deviation) / math.sqrt(2)) / 2
    half = torch.tensor([count / 2, total / 2], dtype=torch.float64)
    return float(min(torch.special.gammainc(*half), torch.special.gammaincc(*half)))


def _not_uniform(tensor, low, high):
    width, count = high - low, tensor.numel()
    if not width > 0:
        return True
    smallest, largest = (float(v) for v in tensor.detach().aminmax())
    slack = 2 * torch.finfo(tensor.dtype).eps * max(abs(low), abs(high))
    if not (smallest >= low - slack and largest <= high + slack):
        return True
    edges = ((largest - low) / width, count, 0.0), ((high - smallest) / width, count, 0.0)
    span = (largest - smallest) / width, count - 1, math.log(count)  # P(span < w) < n w^(n-1)
    for share, power, extra in (*edges, span):
        if power and (share <= 0 or extra + power * math.log(min(share, 1.0)) < math.log(ALPHA)):
            return True
    return _far_from(lambda x: ((x - low) / width).clamp(0, 1), 1 / width, tensor)


def _far_from(distribution, density, tensor):
    """Kolmogorov's distance against the bound of Dvoretzky, Kiefer and Wolfowitz (Massart 1990).

    density: the largest of the distribution; rounding to the tensor's type moves values by so much.
    """
    values = _evenly(tensor, _SHAPE_SAMPLE).sort().values
    count = values.numel()
    expected = distribution(values)
    steps = torch.arange(count + 1, dtype=torch.float64) / count
    distance = max(float((steps[1:] - expected).max()), float((expected - steps[:-1]).max()))
    coarse = density * torch.finfo(tensor.dtype).eps * float(values.abs().max())
    return not distance <= math.sqrt(math.log(2 / ALPHA) / (2 * count)) + coarse


def _is_structured(tensor):
    """Signs that the elements were not drawn independently."""
    if tensor.dim() > 1 and _is_no_accident(tensor):
        return True
    matrix = tensor.detach().flatten(1) if tensor.dim() > 1 else tensor.detach().reshape(1, -1)
    if matrix.shape[1] >= 8 and bool((matrix == matrix[:, :1]).all(dim=1).any()):
        return True
    zeros = float((matrix == 0).double().mean())
    if zeros > 0.02 + DEVIATIONS * math.sqrt(0.02 / matrix.numel()):
        return True
    return min(matrix.shape) >= 16 and _are_related(matrix)


def _is_no_accident(tensor):
    """Whether a row is zeros that drawn values would not be: torch draws a zero once in 2**23 elements, in 16 bits once in 2**7."""
    rows, share = tensor.shape[0], 2.0**-7 if tensor.dtype.itemsize <= 2 else 2.0**-20
    return rows * share ** tensor[0].numel() < ALPHA and bool(_zero_rows(tensor))


def _are_related(matrix):
    """Squared cosines of independent random vectors of length b have mean 1/b and are uncorrelated."""
    short = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    rows = short[:: -(-short.shape[0] // 256), :4096].double()
    rows = rows - rows.mean()
    rows = rows / rows.norm(dim=1, keepdim=True).clamp_min(1e-300)
    count, length = rows.shape
    cosines = (rows @ rows.T).square()
    pairs = count * (count - 1) / 2
    mean = float((cosines.sum() - count) / 2 / pairs) * length
    return not abs(mean - 1) <= DEVIATIONS * math.sqrt(2 / pairs) + 2 / length
