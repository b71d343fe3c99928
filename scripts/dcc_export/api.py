"""`export_train_step`: one call from a module that returns a loss to an archive."""

import contextlib
import dataclasses
import functools
import os

import torch
from torch.export.graph_signature import InputKind

from .archive import save_headless, save_program
from .archive_check import check_export
from .as_traced import require_as_traced
from .capture import capture_joint, strip
from .complex_pairs import remove_complex
from .dynamic import DynamicDims
from .eager import own_faults_first, run_by_pytorch
from .errors import CHECK_FAILED, ExportError, explained
from .evaluation import ENTRY, evaluation_text, trace_evaluation
from .guard import unchanged
from .headless import faked
from .initializers import find_rules
from .inputs import describe_inputs
from .labels import describe_answers, describe_labels
from .left_out import notes_of, require_no_dispatch_modes
from .optimizer import describe_optimizer, limit_of_norm, parameter_order
from .places import Places
from .plain_calls import compiled_from, uncompiled, without_wrappers
from .precision import precision_notes
from .program import LOSS_SCALE, Program, ProgramBuilder, to_exported_program
from .refusals import require_exportable, require_python
from .repeats import HeldByPython, require_repeatable
from .shared_memory import with_values
from .step import StepModule, flatten_inputs
from .ties import find_aliases
from .trained import TrainedState


_DRAWN = "if the module does not take these, say in roles= what it takes; check=False writes the archive unchecked"


@dataclasses.dataclass
class Report:
    """What was written."""

    path: str
    nodes: int
    parameters: int  # elements, tied ones counted once
    inputs: list
    check: str
    without_rule: list  # parameters and buffers that --weights init:SEED cannot draw
    notes: list
    labels: str = ""  # which tokens the labels are; empty without labels from tokens
    checkpoint: str = ""  # the state of an optimizer that has taken steps; empty for a new one


def export_train_step(
    module,
    example_inputs,
    path,
    *,
    optimizer=None,
    clip_norm=None,
    checkpoint=None,
    steps_taken=None,
    samples_consumed=0,
    input_names=None,
    roles=None,
    initializers=None,
    dynamic_shapes=None,
    root="",
    autocast=None,
    attention="cpu",
    headless=False,
    check=True,
    seed=0,
    stock=None,
    notes=(),
    eval=False,
):
    """Writes the joint forward + loss + backward graph of `module` to `path` (.pt2).

    The module is not changed, whether the export succeeds or fails. Raises ExportError.

    module: returns one scalar loss. Mode (train/eval) and requires_grad are taken as they are. Of torch.compile(module), and of compiled
        submodules, what was compiled is exported, under its names.
    example_inputs: a tensor, a tuple of tensors, a dict of keyword tensors, or (tuple, dict). Dim 0 is the batch, and the last dim
        of tokens and labels is the time: so data files fill them.
    optimizer: a torch.optim.AdamW or SGD over this module's parameters, recorded in the archive. If it has taken steps,
        parameters, buffers and moments are also written as a checkpoint, from which `dcrun --resume` goes on.
    clip_norm: gradient norm limit to record next to it.
    checkpoint: the folder of that checkpoint: FOLDER/step-NNNNNNNN; the `--save` folder of the run, or, by default, the
        archive's path with .checkpoints for .pt2.
    steps_taken: how many steps an SGD has taken; it does not count them, and 1 is assumed and noted.
    samples_consumed: samples of the first `--data` epoch that these steps have read; the run goes on with the next one.
    input_names: one name per tensor; by default the names of forward's arguments.
    roles: {input: role or {"role", "low", "high", "labels"}}; roles are tokens (rows of an embedding),
        labels (a class per position; with tokens they come from one token file), mask (nonzero: counts; a
        token file fills it with ones),
        positions (0, 1, ... along the last dim), class (integers of any other kind) and float. "high" is
        exclusive. What is missing is read from the graph. "labels" says which tokens the labels
        are: "same" (the model shifts them, or masks tokens, itself) or "next" (label i is token i + 1:
        the caller shifts). What is missing is found by running the module; an error if it cannot be.
    initializers: {parameter name: rule}; replaces what the values of those parameters show.
    dynamic_shapes: {input: {dim: name}}; sizes of these dims are given to `dcc compile --dim name=size`.
    root: name of the child whose names are the user's, when `module` only wraps it.
    autocast: torch.bfloat16 to run the forward under CPU autocast.
    attention: "cuda-flash" rewrites devices to cuda (the check is then impossible and skipped).
    headless: write graph and shapes without weights; parameters may be on the meta device.
    check: reload the file and compare it with eager; a difference raises ExportError.
    stock: for a transformers config, what to compare with instead of `module` (stock.Stock).
    notes: sentences for people, carried into the notes of every plan of this archive.
    eval: also write the forward of the module in eval mode, for `dcrun --eval-every`; checked against the
        module's own loss in eval mode.
    """
    module = compiled_from("the module", module)
    require_python("the module", module)
    require_no_dispatch_modes()
    args, kwargs, names = flatten_inputs(module, example_inputs, input_names)
    step = StepModule(module, len(args), list(kwargs), autocast)
    export = _Export(
        step=step,
        examples=args + list(kwargs.values()),
        names=names,
        root=root,
        seed=seed,
        headless=headless,
        device="cuda" if attention == "cuda-flash" else None,
        checks=check,
        stock=stock,
        evaluates=eval,
    )
    with _ready_to_trace(export):
        options = _optimizer(step, root, optimizer, clip_norm)
        said = [*notes, *precision_notes()]
        if dynamic_shapes:
            export.dims = DynamicDims(dynamic_shapes, names, export.examples)
        traced = _trace(export)
        said += traced.notes
        description = _describe(export, traced.program, roles, initializers)
        description.update(options)
        trained = TrainedState(step, root, traced.program, optimizer, steps_taken)
        if trained.exists:
            trained.require_weights(headless)
            description["optimizer_step"] = trained.step
            said += trained.notes
        if export.can_run and check:
            with unchanged(module):
                said += require_repeatable(step, export.examples, root, seed)
        if said:
            description["notes"] = said
        folder = checkpoint or os.path.splitext(path)[0] + ".checkpoints"
        line = _write(export, traced, description, path, functools.partial(trained.write, folder, samples_consumed))
        return _report(path, traced.program, step, description, line, trained.path)


@dataclasses.dataclass
class _Export:
    """What the parts of one export read."""

    step: StepModule
    examples: list
    names: list  # of the examples
    root: str
    seed: int
    headless: bool
    device: str  # in the place of cpu in the archive; None: cpu stays
    checks: bool
    stock: object  # a stock.Stock, or None
    evaluates: bool
    dims: DynamicDims = None

    @property
    def can_run(self):
        return not self.headless and self.device is None

    @property
    def module(self):
        return self.step.step

    def user_name(self, fqn):
        return strip(fqn, self.root)


@dataclasses.dataclass
class _Traced:
    program: Program
    exported: torch.export.ExportedProgram
    texts: dict  # {name: content} of further entries of the archive
    notes: list  # sentences about what the trace leaves out


@contextlib.contextmanager
def _ready_to_trace(export):
    """While open the module is as it can be traced: nothing in it is compiled, and its tensors lie in memory as in an archive."""
    step = export.step
    with without_wrappers(step, export.user_name):
        require_exportable(step, export.root, export.headless)
        step.registered = [with_values(Places(step).tensors())]
        with Places(step).contiguous(), uncompiled():
            step.registered.append(with_values(Places(step).tensors()))
            yield


def _trace(export):
    """The training step, and the evaluation where it is asked for."""
    step, root, can_run = export.step, export.root, export.can_run
    with unchanged(export.module), torch.enable_grad():
        tensors = export.dims.fake_examples() if export.dims else export.examples
        with faked(step, tensors) if export.headless else contextlib.nullcontext(tensors) as tensors:
            with unchanged(export.module):  # what the forward keeps is of this trace, and not for the next
                python = HeldByPython(step, root)
                program, exported = _trace_training(export, tensors)
                notes = notes_of(step.left_out) + ([] if can_run and export.checks else python.notes())
                require_as_traced(step, export.examples, root, can_run, export.seed, program.graph)
            texts = {}
            if export.evaluates:
                evaluation = trace_evaluation(step, tensors, export.names, root, export.seed, export.dims, exported.constants)
                texts = {ENTRY: evaluation_text(evaluation)}
                notes += [note for note in notes_of(step.left_out) if note not in notes]
    return _Traced(program, exported, texts, notes)


def _trace_training(export, tensors):
    step, root, dims = export.step, export.root, export.dims
    with _own_faults_first(export), torch.random.fork_rng(devices=[]):
        torch.manual_seed(export.seed)
        joint, state_names = capture_joint(step, tensors, root)
    with explained("making the graph of the step"):
        remove_complex(joint, {own: strip(first, root) for own, first in state_names.items()})
        program = ProgramBuilder(joint, state_names, step, export.names, find_aliases(step, root), root).build()
        return program, to_exported_program(program, dims.examples if dims else tensors, dims.ranges() if dims else {})


def _own_faults_first(export):
    return own_faults_first(export.step, export.examples, export.seed) if export.can_run else contextlib.nullcontext()


def _describe(export, program, roles, initializers):
    """The content of extra/dcc.json, without the optimizer."""
    step, root = export.step, export.root
    description = {
        "format": "dcc-train-step",
        "version": 1,
        "torch": torch.__version__.split("+")[0],
        "inputs": describe_inputs(program.graph, program.user_inputs, export.examples, roles),
        "loss_scale": LOSS_SCALE,
        "aliases": find_aliases(step, root),
        "initializers": _initializers(step, program, root, initializers),
    }
    with unchanged(export.module), run_by_pytorch():
        describe_labels(step, export.examples, description["inputs"], export.can_run, export.seed)
    return description | (export.dims.description() if export.dims else {})


def _write(export, traced, description, path, write_state):
    """Writes the archive, checked if it is to be and can be, and the optimizer's state next to it; returns a line about the check."""
    if export.headless:
        save_headless(traced.exported, description, path, export.device, traced.texts)
        return "check: skipped (no weights)"
    if not export.checks or export.device is not None:
        save_program(traced.exported, description, path, export.device, lambda _: write_state(), texts=traced.texts)
        return f"check: skipped ({'on request' if export.device is None else 'needs a GPU'})"
    with unchanged(export.module), torch.enable_grad():
        return _write_checked(export, traced, description, path, write_state)


def _write_checked(export, traced, description, path, write_state):
    lines = []

    def verify(partial):
        with explained("the check of the archive, on the example and on inputs that it drew,", _DRAWN, CHECK_FAILED), _own_faults_first(export):
            result = check_export(export, partial, description)
        if not result.passed:
            raise ExportError(f"{result.line}; {path} is not written", CHECK_FAILED)
        lines.append(result.line)
        write_state()

    save_program(traced.exported, description, path, verify=verify, texts=traced.texts)
    return lines[0]


def _report(path, program, step, description, line, checkpoint):
    return Report(
        path=str(path),
        nodes=sum(n.op == "call_function" for n in program.graph.nodes),
        parameters=sum(p.numel() for p in step.parameters()),
        inputs=program.user_inputs,
        check=line,
        notes=description.get("notes", []),
        without_rule=[n for n in _saved(program) if n not in description["initializers"]],
        labels=describe_answers(description["inputs"]),
        checkpoint=checkpoint,
    )


def _initializers(step, program, root, given):
    """Rules of every saved tensor that has one; `given` ones replace what the values show."""
    aliases = find_aliases(step, root)

    def canonical(fqn):
        fqn = strip(fqn, root)
        return aliases.get(fqn, fqn)

    rules = find_rules(step, canonical)
    known = {strip(n, root) for n in Places(step).tensors()}
    for fqn, rule in (given or {}).items():
        if aliases.get(fqn, fqn) not in known:
            raise ExportError(f"an initializer is given for {fqn}, which the module lacks")
        rules[aliases.get(fqn, fqn)] = rule
    return {fqn: rules[fqn] for fqn in _saved(program) if fqn in rules}


def _saved(program):
    """Names of the parameters and persistent buffers, in the order of the archive."""
    return [s.target for s in program.signature.input_specs if s.kind is InputKind.PARAMETER or (s.kind is InputKind.BUFFER and s.persistent)]


def _optimizer(step, root, optimizer, clip_norm):
    """What the description says of an optimizer and of a limit for gradients, if there are any."""
    if optimizer is None and clip_norm is None:
        return {}
    if optimizer is None:
        return {"optimizer": {"clip_norm": limit_of_norm(clip_norm)}}
    named = {strip(fqn, root): parameter for fqn, parameter in step.named_parameters()}
    names = {id(parameter): fqn for fqn, parameter in named.items()}
    description = describe_optimizer(optimizer, named, clip_norm)
    return {"optimizer": description, "optimizer_order": parameter_order(optimizer, names)}
