"""Reloads a written archive and compares loss, gradients and buffers with eager.

Two samples are run: the example inputs, and fresh ones drawn from the recorded ranges, which
finds values that were baked into the graph.
"""

import dataclasses

import torch
from torch.export.graph_signature import InputKind, OutputKind

from .errors import ExportError
from .inputs import draw
from .places import Places, copies

# Relative to the tensor's own norm, plus a share of the global gradient norm: some gradients
# are mathematically zero and hold only noise.
BOUNDS = {"float32": (1e-5, 1e-7), "reduced": (2e-2, 1e-4)}


@dataclasses.dataclass
class CheckResult:
    passed: bool
    line: str


def check_archive(path, step, examples, descriptions, strip_name, seed):
    """Compares on two samples. Leaves registered tensors and the random state as found."""
    loaded = torch.export.load(path)
    generator = torch.Generator().manual_seed(seed + 1)
    fresh = [draw(d, e, generator) for d, e in zip(descriptions, examples, strict=True)]
    worst, exact, compared = 0.0, 0, 0
    bound = BOUNDS["reduced" if _is_reduced(step) else "float32"]
    for sample in (examples, fresh):
        ours = _run_loaded(loaded, sample, seed)
        reference = _run_eager(step, loaded, sample, strip_name, seed, set(ours))
        wrong = _wrong_parameter(step, loaded, strip_name)
        if wrong is not None:
            return CheckResult(False, f"check failed: parameter {wrong} is not the module's, or the forward writes to it")
        missing = sorted(set(ours) ^ set(reference))
        if missing:
            return CheckResult(False, f"check failed: only one side has {missing[0]}")
        norm = sum(float(v.double().square().sum()) for k, v in reference.items()) ** 0.5
        for name, value in reference.items():
            compared += 1
            exact += torch.equal(ours[name], value)
            share = _excess(ours[name], value, norm, bound)
            if not share <= 1.0:
                return CheckResult(False, f"check failed: {name} differs from eager by {share:.3g} "
                                   f"times the bound {bound[0]:g} (relative)")
            worst = max(worst, share)
    if exact == compared:
        line = f"check: loss and every gradient equal eager exactly ({compared} tensors, 2 samples)"
    else:
        line = (f"check: {exact} of {compared} tensors exact over 2 samples, the others within "
                f"{bound[0]:g} relative + {bound[1]:g} of the global norm "
                f"(worst {worst:.2g} of that bound)")
    return CheckResult(True, line)


def _is_reduced(step):
    return step.autocast is not None or any(
        p.dtype in (torch.bfloat16, torch.float16) for p in step.parameters()
    )


def _excess(ours, reference, norm, bound):
    if ours.shape != reference.shape or ours.dtype != reference.dtype:
        return float("inf")
    if torch.equal(ours, reference):
        return 0.0
    distance = float((ours.double() - reference.double()).norm())
    allowed = bound[0] * float(reference.double().norm()) + bound[1] * norm
    return distance / allowed if allowed > 0 else float("inf")


def _run_loaded(loaded, sample, seed):
    """Runs the reloaded graph itself; the signature says what each output is."""
    signature = loaded.graph_signature
    users = iter(list(sample) + [torch.tensor(1.0)])
    arguments = []
    for spec in signature.input_specs:
        if spec.kind is InputKind.USER_INPUT:
            arguments.append(next(users))
        elif spec.target in loaded.state_dict:
            arguments.append(loaded.state_dict[spec.target])
        else:
            arguments.append(loaded.constants[spec.target])
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        outputs = loaded.graph_module(*arguments)
    names = {OutputKind.LOSS_OUTPUT: "loss", OutputKind.BUFFER_MUTATION: "buffer ",
             OutputKind.GRADIENT_TO_PARAMETER: "gradient of "}
    return {names[s.kind] + (s.target or ""): v.detach().clone()
            for s, v in zip(signature.output_specs, outputs, strict=True)}


def _run_eager(step, loaded, sample, strip_name, seed, expected):
    """Loss, gradients, and the buffers that changed or were expected to.

    Runs on the archive's own parameters and on copies of the buffers: the user's are not touched.
    """
    places = Places(step)
    lent = {n: _stored(loaded, strip_name(n), p) for n, p in places.parameters.items()}
    buffers = copies(places.buffers)
    parameters = {strip_name(n): p for n, p in lent.items() if p.requires_grad}
    try:
        with torch.random.fork_rng(devices=[]), places.holding({**lent, **buffers}):
            torch.manual_seed(seed)
            loss = step(*[t.clone() for t in sample])
            grads = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
            buffers.update(places.replaced(buffers))
    except (IndexError, RuntimeError) as error:
        first = str(error).strip().splitlines()[0]
        raise ExportError(
            f"the module itself fails on inputs within their recorded ranges: {first}; correct "
            "the ranges (roles) or the module"
        ) from error
    result = {"loss": loss.detach()}
    for name, grad in zip(parameters, grads):
        if grad is not None:
            result["gradient of " + name] = grad
    for name, buffer in buffers.items():
        key = "buffer " + strip_name(name)
        if key in expected or not torch.equal(buffer, places.buffers[name]):
            result[key] = buffer.detach()
    return result


def _wrong_parameter(step, loaded, strip_name):
    """The first parameter that the archive does not hold as the module does; None: all equal."""
    for name, parameter in Places(step).parameters.items():
        if not torch.equal(loaded.state_dict[strip_name(name)], parameter):
            return strip_name(name)
    return None


def _stored(loaded, name, parameter):
    """The archive's copy of a parameter, trained or not as the module's own."""
    stored = loaded.state_dict[name].detach()
    return torch.nn.Parameter(stored, requires_grad=parameter.requires_grad)
