"""Reloads a written archive and compares loss, gradients and buffers with eager.

Two samples are run: the example inputs, and fresh ones drawn from the recorded ranges, which
finds values that were baked into the graph.
"""

import dataclasses

import torch
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils import _pytree as pytree

from .errors import ExportError, first_line
from .inputs import draw
from .places import Places, copies
from .precision import REDUCED

# Relative to the tensor's own norm, plus a share of the global gradient norm: some gradients
# are mathematically zero and hold only noise.
BOUNDS = {"float32": (1e-5, 1e-7), "reduced": (2e-2, 1e-4)}


@dataclasses.dataclass
class CheckResult:
    passed: bool
    line: str


class Comparison:
    """Tensors of two runs compared, over samples. `reference`: what ours are compared with."""

    def __init__(self, reference, bound):
        self.reference = reference
        self.bound = bound
        self.worst, self.exact, self.compared, self.samples = 0.0, 0, 0, 0
        self.failure = None

    def add(self, ours, reference, slack=None):
        """Compares {name: tensor}. slack: {name: further distance that is allowed}."""
        self.samples += 1
        missing = sorted(set(ours) ^ set(reference))
        if missing:
            self.failure = self.failure or f"check failed: only one side has {missing[0]}"
            return
        norm = sum(float(v.double().square().sum()) for v in reference.values()) ** 0.5
        for name, value in reference.items():
            share = _excess(ours[name], value, norm, self.bound, (slack or {}).get(name, 0.0))
            self.compared += 1
            self.exact += torch.equal(ours[name], value)
            self.worst = max(self.worst, share)
            if not share <= 1.0:
                difference = f"differs from {self.reference} by {share:.3g} times the bound {self.bound[0]:g} (relative)"
                if value.isnan().any():
                    difference = f"of {self.reference} is not a number; correct the module, or give inputs for which it is one"
                self.failure = self.failure or f"check failed: {name} {difference}"

    def result(self):
        if self.failure:
            return CheckResult(False, self.failure)
        if self.exact == self.compared:
            return CheckResult(True, f"check: loss and every gradient equal {self.reference} exactly ({self.compared} tensors, {self.samples} samples)")
        return CheckResult(
            True,
            f"check against {self.reference}: {self.exact} of {self.compared} tensors exact "
            f"over {self.samples} samples, the others within {self.bound[0]:g} relative + "
            f"{self.bound[1]:g} of the global norm (worst {self.worst:.2g} of that bound)",
        )


def check_archive(path, step, examples, descriptions, strip_name, seed):
    """Compares on two samples. Leaves registered tensors and the random state as found."""
    loaded = torch.export.load(path)
    wrong = wrong_parameter(step, loaded, strip_name)
    if wrong is not None:
        return wrong
    comparison = Comparison("eager", bound_of(step, loaded))
    for sample in (examples, fresh_sample(examples, descriptions, seed)):
        ours = run_loaded(loaded, loaded.state_dict, sample, seed)
        reference = run_eager(step, loaded.state_dict, sample, strip_name, seed, set(ours))
        comparison.add(ours, reference)
    return wrong_parameter(step, loaded, strip_name) or comparison.result()


def fresh_sample(examples, descriptions, seed):
    """Inputs drawn from their recorded ranges."""
    generator = torch.Generator().manual_seed(seed + 1)
    return [draw(d, e, generator) for d, e in zip(descriptions, examples, strict=True)]


def is_reduced(step):
    return step.autocast is not None or any(p.dtype in REDUCED for p in step.parameters())


def bound_of(step, program):
    """Of BOUNDS, by what `program`, the ExportedProgram of `step`, computes in: a forward may enter autocast itself."""
    values = [value for node in program.graph.nodes if node.op == "call_function" for value in pytree.tree_leaves(node.meta.get("val"))]
    has_reduced = any(isinstance(value, torch.Tensor) and value.dtype in REDUCED for value in values)
    return BOUNDS["reduced" if has_reduced or is_reduced(step) else "float32"]


def _excess(ours, reference, norm, bound, slack):
    if ours.shape != reference.shape or ours.dtype != reference.dtype:
        return float("inf")
    if torch.equal(ours, reference):
        return 0.0
    distance = float((ours.double() - reference.double()).norm())
    allowed = bound[0] * float(reference.double().norm()) + bound[1] * norm + slack
    return distance / allowed if allowed > 0 else float("inf")


def run_loaded(loaded, state, sample, seed):
    """Runs the reloaded graph itself on `state` {fqn: tensor}; its signature says what each output
    is."""
    signature = loaded.graph_signature
    users = iter(list(sample) + [torch.tensor(1.0, dtype=torch.float32)])
    arguments = []
    for spec in signature.input_specs:
        if spec.kind is InputKind.USER_INPUT:
            arguments.append(next(users))
        elif spec.target in state:
            arguments.append(state[spec.target])
        else:
            arguments.append(loaded.constants[spec.target])
    with torch.random.fork_rng(devices=[]), torch.no_grad(), torch.autocast("cpu", enabled=False):  # the graph has its casts
        torch.manual_seed(seed)
        outputs = loaded.graph_module(*arguments)
    names = {OutputKind.LOSS_OUTPUT: "loss", OutputKind.BUFFER_MUTATION: "buffer ", OutputKind.GRADIENT_TO_PARAMETER: "gradient of "}
    return {names[s.kind] + (s.target or ""): v.detach().clone() for s, v in zip(signature.output_specs, outputs, strict=True)}


def run_eager(step, state, sample, strip_name, seed, expected):
    """Loss, gradients, the buffers that changed or were expected to, and parameters that changed.

    Runs on the parameters of `state` {fqn: tensor}, cast to the module's types, and on copies of
    the module's buffers: its own are not touched.
    """
    places = Places(step)
    lent = {n: _stored(state, strip_name(n), p) for n, p in places.parameters.items()}
    buffers = copies(places.buffers)
    parameters = {strip_name(n): p for n, p in lent.items() if p.requires_grad}
    try:
        with torch.random.fork_rng(devices=[]), places.holding({**lent, **buffers}):
            torch.manual_seed(seed)
            loss = step(*[t.clone() for t in sample])
            loss.backward()  # a reentrant checkpoint refuses torch.autograd.grad
            buffers.update(places.replaced(buffers))
    except (IndexError, RuntimeError) as error:
        raise ExportError(
            f"the module itself fails on inputs within their recorded ranges: {first_line(error)}; correct the ranges (roles) or the module"
        ) from error
    result = {"loss": loss.detach()}
    for name, parameter in parameters.items():
        if parameter.grad is not None:
            result["gradient of " + name] = parameter.grad
    for name, parameter in lent.items():
        if not torch.equal(parameter, _stored(state, strip_name(name), parameter)):
            result["parameter " + strip_name(name) + " in the forward"] = parameter.detach()
    for name, buffer in buffers.items():
        key = "buffer " + strip_name(name)
        if key in expected or not torch.equal(buffer, places.buffers[name]):
            result[key] = buffer.detach()
    return result


def wrong_parameter(step, loaded, strip_name):
    """A failure if the archive does not hold a parameter as the module does; None: all equal."""
    for name, parameter in Places(step).parameters.items():
        if not torch.equal(loaded.state_dict[strip_name(name)], parameter):
            return CheckResult(False, f"check failed: parameter {strip_name(name)} is not the module's, or the forward writes to it")
    return None


def _stored(state, name, parameter):
    """The archive's copy of a parameter, trained or not as the module's own."""
    stored = state[name].detach().to(parameter.dtype)
    return torch.nn.Parameter(stored, requires_grad=parameter.requires_grad)
