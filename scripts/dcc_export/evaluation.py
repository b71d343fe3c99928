"""The second program of an archive: the forward of the module in eval mode, up to its loss.

Dropout is off, batch norms use their running statistics, and whatever else the module does otherwise in eval mode it does. The
program reads the training step's parameters and buffers and writes nothing. It is stored as `extra/evaluation.json`, in the format
of `models/model.json`; constants that the training step does not have are named `evaluation.<n>` in the archive's table of constants.
"""

import contextlib
import json

import torch
from torch._functorch._aot_autograd import descriptors as desc
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils._python_dispatch import TorchDispatchMode

from .archive import EVALUATION_PREFIX, without_pickles
from .capture import capture_joint, strip
from .check import CheckResult, bound_of, fresh_sample
from .complex_pairs import remove_complex
from .errors import ExportError, explained
from .guard import unchanged
from .places import Places, copies
from .program import ProgramBuilder, to_exported_program
from .ties import find_aliases

ENTRY = "evaluation.json"


@contextlib.contextmanager
def in_eval_mode(step):
    """While open the user's module is in eval mode; afterwards it is as before, without a call of its train()."""
    with unchanged(step.step):
        step.step.eval()
        step.evaluates = True
        try:
            yield
        finally:
            step.evaluates = False


def require_plain_eval_mode(step, root):
    """Raises ExportError if eval() of the user's module writes parameters or buffers, as an overridden train() may. It runs on copies of them."""
    if not any(_has_own_modes(module) for module in step.modules()):
        return
    places = Places(step)
    lent = copies(places.tensors())
    memory = {name: tensor.untyped_storage()._cdata for name, tensor in lent.items()}
    with unchanged(step.step), places.holding(lent), _Writes(set(memory.values())) as writes:
        step.step.eval()
        replaced = [name for name, _ in places.replaced(lent)]
        moved = [name for name, tensor in lent.items() if tensor.untyped_storage()._cdata != memory[name]]
        added = set(Places(step).tensors()) - set(lent)
    written = [name for name in lent if memory[name] in writes.found]
    for name in (*replaced, *moved, *written, *sorted(added)):
        raise ExportError(
            f"in eval mode the module has another {strip(name, root)}: its eval() writes it, as those do that merge LoRA weights or swap in averaged "
            "ones, and an evaluation reads what is trained; leave that out of its train() (merge_weights=False), or export without eval=True"
        )


def _has_own_modes(module):
    return any(getattr(type(module), name) is not getattr(torch.nn.Module, name) or name in vars(module) for name in ("train", "eval"))


class _Writes(TorchDispatchMode):
    """Inside, `found` collects which of the given storages an operator writes to."""

    def __init__(self, storages):
        super().__init__()
        self._storages, self.found = storages, set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func._schema.is_mutable:
            for argument, value in zip(func._schema.arguments, args):
                if argument.alias_info is not None and argument.alias_info.is_write:
                    tensors = value if isinstance(value, (list, tuple)) else [value]
                    self.found |= {tensor.untyped_storage()._cdata for tensor in tensors} & self._storages
        return func(*args, **(kwargs or {}))


def trace_evaluation(step, examples, names, root, seed, dims, constants):
    """The ExportedProgram of the forward in eval mode. Its outputs are the loss alone, its inputs those of the training step without
    `loss_scale`. `constants`: {name: tensor} of the training step's program; equal ones keep their name, others are added under a
    other name."""
    require_plain_eval_mode(step, root)
    with in_eval_mode(step), torch.random.fork_rng(devices=[]), _said_of_evaluation():
        torch.manual_seed(seed)
        joint, state_names = capture_joint(step, examples, root)
    _refuse_writes(joint, state_names, root)
    with explained("making the graph of the evaluation"):
        remove_complex(joint, {own: strip(first, root) for own, first in state_names.items()})
        builder = ProgramBuilder(joint, state_names, step, names, find_aliases(step, root), root, forward_only=True)
        program = builder.build()
        _share_constants(program, constants)
        return to_exported_program(program, dims.examples if dims else examples, dims.ranges() if dims else {})


@contextlib.contextmanager
def _said_of_evaluation():
    try:
        yield
    except ExportError as error:
        what = "the evaluation, which is the module in eval mode and traced with a backward as the step is, cannot be exported"
        raise type(error)(f"{what}: {error}; or export without eval=True", error.exit_code) from error


def _refuse_writes(joint, state_names, root):
    (outputs,) = [n for n in joint.graph.nodes if n.op == "output"]
    for what in outputs.meta["desc"]:
        if isinstance(what, desc.InputMutationAOTOutput) and isinstance(what.mutated_input, desc.BufferAOTInput):
            fqn = strip(state_names[what.mutated_input.target], root)
            raise ExportError(
                f"in eval mode the forward writes buffer {fqn}; an evaluation must leave the state of the training as it "
                "is: write it in training mode only (if self.training), or export without eval=True"
            )


def _share_constants(program, constants):
    """Renames lifted constants: to that of an equal one of the training step, else to a new name."""
    for number, spec in enumerate(s for s in program.signature.input_specs if s.kind is InputKind.CONSTANT_TENSOR):
        value = program.constants.pop(spec.target)
        spec.target = next((name for name, other in constants.items() if _equal(value, other)), f"{EVALUATION_PREFIX}{number}")
        program.constants[spec.target] = value
        constants.setdefault(spec.target, value)


def _equal(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.stride() == b.stride() and torch.equal(a, b)


def evaluation_text(exported):
    """The content of the entry, compact; no weights, no constants."""
    from torch._export.serde.serialize import ExportedProgramSerializer, _to_json_bytes

    with explained("writing the graph of the evaluation"), without_pickles(samples=False):
        serialized = ExportedProgramSerializer().serialize(exported).exported_program
    return json.dumps(json.loads(_to_json_bytes(serialized)), separators=(",", ":"), allow_nan=False)


def check_evaluation(path, step, examples, descriptions, strip_name, seed):
    """The loss of the archive's evaluation against the module's own in eval mode, on two samples: the examples and drawn ones."""
    loaded = torch.export.load(path)
    program = _load(path, loaded)
    relative = bound_of(step, program)[0]
    worst = 0.0
    for sample in (examples, fresh_sample(examples, descriptions, seed)):
        ours = _run_loaded(program, loaded, sample)
        reference = _run_eager(step, loaded.state_dict, sample, strip_name)
        distance, allowed = abs(ours - reference), relative * abs(reference)
        if not distance <= allowed:
            return CheckResult(False, f"check failed: the loss of the evaluation is {ours!r} and that of the module in eval mode {reference!r}")
        worst = max(worst, distance / allowed if distance else 0.0)
    how = "exactly" if worst == 0.0 else f"within {worst:.2g} of the bound {relative:g}"
    return CheckResult(True, f"evaluation: the loss equals the module's in eval mode {how} (2 samples)")


def _load(path, loaded):
    """The evaluation of the archive at `path`, with the loaded training step's weights and constants."""
    from torch._export.serde.schema import ExportedProgram
    from torch._export.serde.serialize import ExportedProgramDeserializer, _dict_to_dataclass

    text = torch._C.PyTorchFileReader(str(path)).get_record(f"extra/{ENTRY}")
    serialized = _dict_to_dataclass(ExportedProgram, json.loads(text))
    return ExportedProgramDeserializer().deserialize(serialized, loaded.state_dict, loaded.constants)


def _run_loaded(program, loaded, sample):
    users = iter(sample)
    arguments = []
    for spec in program.graph_signature.input_specs:
        if spec.kind is InputKind.USER_INPUT:
            arguments.append(next(users))
        else:
            arguments.append(loaded.state_dict[spec.target] if spec.target in loaded.state_dict else loaded.constants[spec.target])
    (spec,) = program.graph_signature.output_specs
    assert spec.kind is OutputKind.LOSS_OUTPUT
    with torch.no_grad():
        return float(program.graph_module(*arguments)[0])


def _run_eager(step, state, sample, strip_name):
    """The loss of the module in eval mode, on the archive's weights and copies of the module's buffers."""
    places = Places(step)
    lent = {n: torch.nn.Parameter(state[strip_name(n)].detach().to(p.dtype), requires_grad=p.requires_grad) for n, p in places.parameters.items()}
    with in_eval_mode(step), places.holding({**lent, **copies(places.buffers)}):
        return float(step(*[t.clone() for t in sample]).detach())
