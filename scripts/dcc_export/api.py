"""`export_train_step`: one call from a module that returns a loss to an archive."""

import contextlib
import dataclasses

import torch
from torch.export.graph_signature import InputKind

from .archive import save_headless, save_program
from .capture import capture_joint, strip
from .check import check_archive
from .errors import CHECK_FAILED, ExportError
from .headless import faked
from .initializers import default_rules
from .inputs import describe_inputs
from .optimizer import describe_optimizer
from .program import LOSS_SCALE, ProgramBuilder, to_exported_program
from .step import StepModule, flatten_inputs
from .ties import find_aliases


@dataclasses.dataclass
class Report:
    """What was written."""

    path: str
    nodes: int
    parameters: int  # elements, tied ones counted once
    inputs: list
    check: str


def export_train_step(
    module,
    example_inputs,
    path,
    *,
    optimizer=None,
    clip_norm=None,
    input_names=None,
    roles=None,
    initializers=None,
    root="",
    autocast=None,
    attention="cpu",
    headless=False,
    check=True,
    seed=0,
):
    """Writes the joint forward + loss + backward graph of `module` to `path` (.pt2).

    module: returns one scalar loss. Mode (train/eval) and requires_grad are taken as they are.
    example_inputs: a tensor, a tuple of tensors, a dict of keyword tensors, or (tuple, dict).
    optimizer: a torch.optim.AdamW or SGD over this module's parameters, recorded in the archive.
    clip_norm: gradient norm limit to record beside it.
    input_names: one name per tensor; by default the names of forward's arguments.
    roles: {input: role or {"role", "low", "high"}}; what is missing is read from the graph.
    initializers: {parameter name: rule}; replaces the derived rules of those names.
    root: name of the child whose names are the user's, when `module` only wraps it.
    autocast: torch.bfloat16 to run the forward under CPU autocast.
    attention: "cuda-flash" rewrites devices to cuda (the check is then impossible and skipped).
    headless: write graph and shapes without weights; parameters may be on the meta device.
    check: reload the file and compare it with eager; a difference raises ExportError.
    """
    args, kwargs, names = flatten_inputs(module, example_inputs, input_names)
    step = StepModule(module, len(args), list(kwargs), autocast)
    examples = args + list(kwargs.values())
    aliases = find_aliases(step, root)
    with faked(step, examples) if headless else contextlib.nullcontext(examples) as tensors:
        program, exported = _trace(step, tensors, names, aliases, root, seed)
    description = _describe(step, program, examples, roles, initializers, root)
    if optimizer is not None or clip_norm is not None:
        description.update(_optimizer(step, root, optimizer, clip_norm))
    device = "cuda" if attention == "cuda-flash" else None
    if headless:
        save_headless(exported, description, path, device)
        return _report(path, program, step, "check: skipped (no weights)")
    if not check or device is not None:
        save_program(exported, description, path, device)
        reason = "on request" if device is None else "needs a GPU"
        return _report(path, program, step, f"check: skipped ({reason})")
    lines = []

    def verify(partial):
        result = check_archive(
            partial, step, examples, description["inputs"], lambda n: strip(n, root), seed
        )
        if not result.passed:
            raise ExportError(f"{result.line}; {path} is not written", CHECK_FAILED)
        lines.append(result.line)

    save_program(exported, description, path, verify=verify)
    return _report(path, program, step, lines[0])


def _trace(step, examples, names, aliases, root, seed):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        joint = capture_joint(step, examples, root)
    program = ProgramBuilder(joint, step, names, aliases, root).build()
    return program, to_exported_program(program, examples)


def _describe(step, program, examples, roles, initializers, root):
    """The content of extra/dcc.json, without the optimizer."""
    return {
        "format": "dcc-train-step",
        "version": 1,
        "torch": torch.__version__.split("+")[0],
        "inputs": describe_inputs(program.graph, program.user_inputs, examples, roles),
        "loss_scale": LOSS_SCALE,
        "aliases": find_aliases(step, root),
        "initializers": _initializers(step, program, root, initializers),
    }


def _report(path, program, step, line):
    return Report(
        path=str(path),
        nodes=sum(n.op == "call_function" for n in program.graph.nodes),
        parameters=sum(p.numel() for p in step.parameters()),
        inputs=program.user_inputs,
        check=line,
    )


def _initializers(step, program, root, given):
    """Rules of every saved tensor that has one; `given` ones replace derived ones."""
    rules = {strip(k, root): v for k, v in default_rules(step).items()}
    aliases = find_aliases(step, root)
    for fqn, rule in (given or {}).items():
        rules[aliases.get(fqn, fqn)] = rule
    known = {strip(n, root) for n, _ in step.named_parameters()}
    known.update(strip(n, root) for n, _ in step.named_buffers())
    unknown = sorted(set(rules) - known)
    if unknown:
        raise ExportError(f"an initializer is given for {unknown[0]}, which the module lacks")
    names = [
        s.target
        for s in program.signature.input_specs
        if s.kind is InputKind.PARAMETER or (s.kind is InputKind.BUFFER and s.persistent)
    ]
    return {fqn: rules[fqn] for fqn in names if fqn in rules}


def _optimizer(step, root, optimizer, clip_norm):
    if optimizer is None:
        return {"optimizer": {"clip_norm": float(clip_norm)}}
    named = {strip(fqn, root): parameter for fqn, parameter in step.named_parameters()}
    return {"optimizer": describe_optimizer(optimizer, named, clip_norm)}
