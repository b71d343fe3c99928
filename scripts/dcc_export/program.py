"""Turns a joint GraphModule with descriptors into an ExportedProgram.

Inputs: parameters, buffers, constants, user inputs, loss_scale. Outputs: buffer mutations, the
loss, one gradient per trainable parameter that has one. Tied names share the canonical input.
"""

import contextlib
import dataclasses
import keyword

import torch
from torch._functorch._aot_autograd import descriptors as desc
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)

from . import default_types, fake_mode, strides
from .capture import KEPT, MODULE_KEY, strip
from .errors import ExportError
from .places import Places
from .shared_memory import names_of

aten = torch.ops.aten
LOSS_SCALE = "loss_scale"
_NOT_TRAINED = "would not train it there"
_NOT_READ = "an exported step would hold what it is now"

# The same views, declared as such.
_SAFE = {
    aten.unsafe_split.Tensor: aten.split.Tensor,
    aten.unsafe_split_with_sizes.default: aten.split_with_sizes.default,
}


@dataclasses.dataclass
class Program:
    """The pieces an ExportedProgram is made of."""

    graph: torch.fx.Graph
    signature: ExportGraphSignature
    state_dict: dict
    constants: dict
    user_inputs: list  # names of the user inputs, without loss_scale


class ProgramBuilder:
    """Copies the joint graph into export order. One use: `ProgramBuilder(...).build()`.

    forward_only: the loss is the one output, and what it does not need is left out, `loss_scale` too.
    """

    def __init__(self, joint, state_names, step, input_names, aliases, root, forward_only=False):
        self.joint = joint
        self.state_names = state_names  # what descriptors say -> first name in the step
        self.step = step
        self.names = input_names
        self.aliases = aliases
        self.root = root
        self.forward_only = forward_only
        self.graph = torch.fx.Graph()
        self.env = {}  # joint node -> new node
        self.moved = set()  # new nodes whose values have other strides than while tracing
        self.specs = []
        self.by_fqn = {}  # canonical fqn -> new placeholder
        self.constants = {}
        self.written = set()  # names of the buffers that the forward writes

    def build(self):
        placeholders = [n for n in self.joint.graph.nodes if n.op == "placeholder"]
        self._refuse_unknown(placeholders)
        self._refuse_writes()
        self._add_state(placeholders)
        self._add_lifted_constants()
        users = self._add_user_inputs(placeholders)
        self._add_tangent(placeholders)
        for node in self.joint.graph.nodes:
            if node.op == "call_function":
                self._copy_call(node)
        outputs = self._outputs()
        self.graph.output(tuple(node for _, node in outputs))
        if self.forward_only:
            self._drop_unused()
        self.graph.lint()
        signature = ExportGraphSignature(self.specs, [self._out_spec(*o) for o in outputs])
        return Program(self.graph, signature, self._state_dict(), self.constants, users)

    # -- inputs ---------------------------------------------------------------------------------

    def _refuse_unknown(self, placeholders):
        known = (
            desc.ParamAOTInput,
            desc.BufferAOTInput,
            desc.PlainAOTInput,
            desc.TangentAOTInput,
        )
        for node in placeholders:
            if not isinstance(node.meta["desc"], known):
                raise ExportError(
                    f"the traced graph has an input of kind {type(node.meta['desc']).__name__} "
                    f"({node.meta['desc'].expr()}); two parameters or inputs share memory as "
                    "views, make them independent tensors"
                )

    def _refuse_writes(self):
        (outputs,) = [n for n in self.joint.graph.nodes if n.op == "output"]
        for what in outputs.meta["desc"]:
            if not isinstance(what, desc.InputMutationAOTOutput):
                continue
            source = what.mutated_input
            if isinstance(source, desc.BufferAOTInput):
                self.written.add(self._fqn(source))
            if isinstance(source, desc.ParamAOTInput):
                raise ExportError(
                    f"the forward writes in place to parameter {self._fqn(source)}; only an optimizer may change it: make it a buffer, freeze it with requires_grad_(False), or write to a copy"
                )
            if isinstance(source, desc.PlainAOTInput):
                raise ExportError(f"the forward writes in place to input {self.names[source.idx]}; only buffers may be written: write to a copy")

    def _add_state(self, placeholders):
        buffers_kept = self._persistent_buffers()
        for kind in (desc.ParamAOTInput, desc.BufferAOTInput):
            for node in placeholders:
                if not isinstance(node.meta["desc"], kind):
                    continue
                fqn = self._fqn(node.meta["desc"])
                is_param = kind is desc.ParamAOTInput
                new = self._placeholder(("p_" if is_param else "b_") + _identifier(fqn), node)
                self.by_fqn[fqn] = self.env[node] = new
                persistent = None if is_param else fqn in buffers_kept
                self._spec(InputKind.PARAMETER if is_param else InputKind.BUFFER, new, fqn, persistent)

    def _fqn(self, what):
        """The user's name of the parameter or buffer that a descriptor means."""
        return strip(self.state_names[what.target], self.root)

    def _add_lifted_constants(self):
        for node in self.joint.graph.nodes:
            if node.op != "get_attr":
                continue
            value = getattr(self.joint, node.target)
            if not isinstance(value, torch.Tensor):
                raise ExportError(
                    f"the traced graph holds a {type(value).__name__} as attribute "
                    f"{node.target!r} (a control-flow subgraph or a script object); replace it "
                    "by plain tensor code"
                )
            self._refuse_registered(value)
            fqn = f"lifted_tensor_{len(self.constants)}"
            new = self.graph.placeholder(f"c_{fqn}")
            value = getattr(value, "constant", None) if isinstance(value, FakeTensor) else value
            if value is None:
                raise ExportError("the forward creates a tensor whose value is not known headless")
            new.meta = {"val": fake_mode.of(self.joint).from_tensor(value, static_shapes=True)}
            with unset_fake_temporarily():  # a headless export runs inside a fake mode
                self.constants[fqn] = value.detach().clone()
            self._spec(InputKind.CONSTANT_TENSOR, new, fqn)
            self.env[node] = new

    def _refuse_registered(self, constant):
        """Where fake tensors stand for the inputs, a trace takes any tensor that it does not find where it is registered for a constant."""
        parameters, kept = Places(self.step).parameters, self._persistent_buffers() | self.written
        registered = [] if isinstance(constant, FakeTensor) else self.step.registered
        for fqn in sorted({name for found in registered for name in names_of(constant, found)}):
            name = strip(fqn, self.root)
            if fqn in parameters:
                self._refuse_elsewhere(f"parameter {name}", _NOT_TRAINED if parameters[fqn].requires_grad else _NOT_READ)
            if name in kept:
                self._refuse_elsewhere(f"buffer {name}", _NOT_READ)
        if constant.requires_grad:
            self._refuse_elsewhere("a trained tensor", _NOT_TRAINED)

    def _refuse_elsewhere(self, what, fault):
        raise ExportError(
            f"the forward computes with {what} from where it is not registered, as a list or an attribute, and {fault}; "
            "read a parameter or buffer where the module has registered it, or use nn.Parameter or nn.ParameterList"
        )

    def _add_user_inputs(self, placeholders):
        plain = [n for n in placeholders if isinstance(n.meta["desc"], desc.PlainAOTInput)]
        plain.sort(key=lambda n: n.meta["desc"].idx)
        for node, name in zip(plain, self.names, strict=True):
            new = self._placeholder(name, node)
            if name not in {n.name for n in self.graph.nodes}:
                new.name = new.target = name  # names such as "input" are builtins to fx
            self.env[node] = new
            self._spec(InputKind.USER_INPUT, new, None)
        return [self.env[n].name for n in plain]

    def _add_tangent(self, placeholders):
        tangents = [n for n in placeholders if isinstance(n.meta["desc"], desc.TangentAOTInput)]
        if len(tangents) != 1:
            raise ExportError(f"expected one differentiable output, the loss; got {len(tangents)}")
        tangent = tangents[0]
        new = self.graph.placeholder(LOSS_SCALE)
        fake = tangent.meta["val"]
        new.meta = {"val": fake_mode.of(self.joint).from_tensor(torch.tensor(1.0, dtype=torch.float32))}
        self._spec(InputKind.USER_INPUT, new, None)
        if fake.dtype != torch.float32:
            self.pending_tangent = (tangent, new, fake)
        else:
            self.pending_tangent = None
        self.env[tangent] = new

    def _placeholder(self, name, source):
        new = self.graph.placeholder(name)
        new.meta = {"val": source.meta["val"]}
        return new

    def _spec(self, kind, node, target, persistent=None):
        self.specs.append(InputSpec(kind, TensorArgument(node.name), target, persistent))

    # -- nodes ----------------------------------------------------------------------------------

    def _copy_call(self, node):
        if self._is_identity(node):
            self.env[node] = self.env[node.args[0]]
            return
        if self.pending_tangent and any(a is self.pending_tangent[0] for a in node.all_input_nodes):
            self._cast_tangent()
        if isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable:
            raise ExportError(
                f"a backward writes in place ({node.target} in {_marks(node)['m'] or 'the module'}), as hooks of tensors and autograd functions may; {KEPT}"
            )
        _require_types(node)
        new = self.graph.node_copy(node, lambda n: self.env[n])
        new.args = _readable_arguments(new)
        new.target = _SAFE.get(node.target, node.target)
        new.meta = {"val": node.meta["val"], "custom": _marks(node)}
        if any(operand in self.moved for operand in new.all_input_nodes):
            self._recompute(new)
        new.meta["val"] = _storable(new.meta["val"])
        if torch.get_default_dtype() != torch.float32:
            default_types.write_down(new, _marks(node)["m"], self._result)
        self.env[node] = new
        if strides.are_misjudged(new):
            self.env[node] = self._contiguous(new)

    def _contiguous(self, node):
        copy = self.graph.call_function(aten.clone.default, (node,), {"memory_format": torch.contiguous_format})
        with fake_mode.of(self.joint):
            copy.meta = {**node.meta, "val": node.meta["val"].contiguous().clone()}
        self.moved.add(copy)
        return copy

    def _recompute(self, node):
        """The value of a node whose operands lie otherwise in memory than while tracing: the strides of a view follow its operand's. A view
        that they do not allow reads contiguous copies."""
        traced = node.meta["val"]
        try:
            node.meta["val"] = self._result(node)
        except (RuntimeError, ValueError):
            with self.graph.inserting_before(node):
                copies = {n: self._contiguous(n) for n in node.all_input_nodes if n in self.moved}
            node.args, node.kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda n: copies.get(n, n))
            node.meta["val"] = self._result(node)
        if _strides(node.meta["val"]) != _strides(traced):
            self.moved.add(node)

    def _result(self, node):
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
        with fake_mode.of(self.joint):
            return node.target(*args, **kwargs)

    def _is_identity(self, node):
        if node.target in (aten.detach.default, aten.alias.default):
            return True
        source = node.args[0] if node.args else None
        if not isinstance(source, torch.fx.Node):
            return False
        return node.target == aten.lift_fresh_copy.default and source.op == "get_attr"

    def _cast_tangent(self):
        tangent, scale, fake = self.pending_tangent
        cast = self.graph.call_function(aten._to_copy.default, (scale,), {"dtype": fake.dtype})
        cast.meta = {"val": fake, "custom": {"m": "", "ph": "b"}}
        self.env[tangent] = cast
        self.pending_tangent = None

    # -- outputs --------------------------------------------------------------------------------

    def _outputs(self):
        """Returns [(kind, target), node] in export order; every node appears once."""
        joint_outputs = [n for n in self.joint.graph.nodes if n.op == "output"][0]
        values, descs = joint_outputs.args[0], joint_outputs.meta["desc"]
        mutations, losses, gradients = [], [], {}
        for value, what in zip(values, descs, strict=True):
            if isinstance(what, desc.InputMutationAOTOutput):
                mutations.append((self._fqn(what.mutated_input), self.env[value]))
            elif isinstance(what, desc.GradAOTOutput):
                self._collect_gradient(gradients, what.grad_of, value)
            elif isinstance(what, desc.PlainAOTOutput):
                losses.append(self.env[value])
            elif value is not None:
                raise ExportError(f"the traced graph has an unexpected output {what.expr()}")
        if self.forward_only:
            return self._distinct([((OutputKind.LOSS_OUTPUT, None), losses[0])])
        if not gradients:
            raise ExportError("no parameter receives a gradient; nothing would be trained")
        outputs = [((OutputKind.BUFFER_MUTATION, fqn), node) for fqn, node in mutations]
        outputs.append(((OutputKind.LOSS_OUTPUT, None), losses[0]))
        for fqn in self.by_fqn:
            if fqn in gradients:
                outputs.append(((OutputKind.GRADIENT_TO_PARAMETER, fqn), gradients[fqn]))
        return self._distinct(outputs)

    def _drop_unused(self):
        """Takes out nodes, lifted constants and `loss_scale` that the outputs do not need; all state and user inputs stay."""
        for node in reversed(list(self.graph.nodes)):
            if node.op == "call_function" and not node.users:
                self.graph.erase_node(node)
        placeholders = {n.name: n for n in self.graph.nodes if n.op == "placeholder"}
        for spec in list(self.specs):
            name = spec.arg.name
            if placeholders[name].users or (spec.kind is not InputKind.CONSTANT_TENSOR and name != LOSS_SCALE):
                continue
            self.graph.erase_node(placeholders[name])
            self.specs.remove(spec)
            self.constants.pop(spec.target, None)

    def _collect_gradient(self, gradients, of, value):
        if value is None or not isinstance(of, desc.ParamAOTInput):
            return
        if value.meta["val"].layout is not torch.strided:
            raise ExportError(f"the gradient of {self._fqn(of)} is sparse; turn sparse=True off")
        gradients[self._fqn(of)] = self.env[value]

    def _distinct(self, outputs):
        """An output that is an input, or an earlier output, becomes a clone of it."""
        seen, result = set(), []
        for what, node in outputs:
            if node in seen or node.op == "placeholder":
                forward = what[0] is not OutputKind.GRADIENT_TO_PARAMETER
                node = self._emit(aten.clone.default, (node,), phase="f" if forward else "b")
            seen.add(node)
            result.append((what, node))
        return result

    def _emit(self, op, args, phase):
        with fake_mode.of(self.joint):
            value = op(*(a.meta["val"] for a in args))
        with self._place_for(phase):
            new = self.graph.call_function(op, args)
        new.meta = {"val": value, "custom": {"m": "", "ph": phase}}
        return new

    def _place_for(self, phase):
        """Forward nodes stay before backward nodes."""
        if phase == "f":
            for node in self.graph.nodes:
                if node.meta.get("custom", {}).get("ph") == "b":
                    return self.graph.inserting_before(node)
        return contextlib.nullcontext()

    @staticmethod
    def _out_spec(what, node):
        return OutputSpec(what[0], TensorArgument(node.name), what[1])

    # -- state ----------------------------------------------------------------------------------

    def _persistent_buffers(self):
        kept = {strip(name, self.root) for name in self.step.written_parameters}
        for prefix, module in self.step.named_modules(remove_duplicate=False):
            for name in module._buffers:
                if name not in module._non_persistent_buffers_set:
                    kept.add(strip(f"{prefix}.{name}" if prefix else name, self.root))
        return kept

    def _state_dict(self):
        """Every name, aliases included, so that a loader by name finds them all."""
        persistent = self._persistent_buffers()
        state = {}
        for fqn, parameter in self.step.named_parameters(remove_duplicate=False):
            state[strip(fqn, self.root)] = parameter
        for fqn, buffer in self.step.named_buffers(remove_duplicate=False):
            name = strip(fqn, self.root)
            if buffer.is_complex() and name in persistent:
                raise ExportError(f"buffer {name} is complex, which saved weights cannot be; register it with persistent=False")
            if name in persistent:
                state[name] = buffer
            elif name in self.by_fqn:
                self.constants[name] = torch.view_as_real(buffer) if buffer.is_complex() else buffer
        return state


def _require_types(node):
    """The dtype arguments of operators are types that the archive format has."""
    from torch._export.serde.serialize import _TORCH_TO_SERIALIZE_DTYPE

    for value in torch.utils._pytree.tree_leaves((node.args, node.kwargs)):
        if isinstance(value, torch.dtype) and value not in _TORCH_TO_SERIALIZE_DTYPE:
            raise ExportError(
                f"{node.target} in {_marks(node)['m'] or 'the module'} makes {value}, which archives of torch.export do not have; "
                "use another type, for integers torch.int64"
            )


def _identifier(fqn):
    return "".join(c if c.isalnum() else "_" for c in fqn)


def _readable_arguments(node):
    """The node's arguments, with all defaults where one is named by a Python keyword, as in
    `uniform(self, from=0, to=1)`: torch writes such a call without it but cannot read it back."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or not any(keyword.iskeyword(a.name) for a in schema.arguments):
        return node.args
    left_out = [a for a in schema.arguments if not a.kwarg_only][len(node.args) :]
    return (*node.args, *(a.default_value for a in left_out if a.name not in node.kwargs))


def _marks(node):
    backward = node.meta.get("partitioner_tag") == "is_backward"
    marks = {"m": (node.meta.get("custom") or {}).get(MODULE_KEY, "")}
    marks["ph"] = "b" if backward else "f"
    if node.meta.get("is_gradient_acc"):
        marks["acc"] = 1
    return dict(sorted(marks.items()))


def _storable(value):
    """The format has no uint64 (the random state of CUDA attention); int64 has its width."""
    if isinstance(value, (tuple, list)):
        return type(value)(_storable(v) for v in value)
    if isinstance(value, torch.Tensor) and value.dtype == torch.uint64:
        with value.fake_mode:
            return torch.empty(value.shape, dtype=torch.int64, device=value.device)
    return value


def _strides(value):
    return [t.stride() for t in torch.utils._pytree.tree_leaves(value) if isinstance(t, torch.Tensor)]


def to_exported_program(program, example_inputs, ranges):
    """Wraps the pieces; `example_inputs` are the user's tensors in graph order, `ranges` those of symbols."""
    import torch.utils._pytree as pytree
    from torch._export.verifier import Verifier
    from torch.export.exported_program import (
        ExportedProgram,
        ModuleCallEntry,
        ModuleCallSignature,
    )

    signature = program.signature
    users = [s.arg.name for s in signature.input_specs if s.kind is InputKind.USER_INPUT]
    examples = tuple(example_inputs) + ((torch.tensor(1.0, dtype=torch.float32),) if users[-1:] == [LOSS_SCALE] else ())
    ins = [TensorArgument(n) for n in users]
    outs = [s.arg for s in signature.output_specs if s.kind is not OutputKind.BUFFER_MUTATION]
    in_spec = pytree.tree_flatten((examples, {}))[1]
    out_spec = pytree.tree_flatten(tuple(range(len(outs))))[1]
    call = ModuleCallSignature(inputs=ins, outputs=outs, in_spec=in_spec, out_spec=out_spec)
    return ExportedProgram(
        root=torch.nn.Module(),
        graph=program.graph,
        graph_signature=signature,
        state_dict=program.state_dict,
        range_constraints=ranges,
        module_call_graph=[ModuleCallEntry("", call)],
        example_inputs=(examples, {}),
        constants=program.constants,
        verifiers=[Verifier],
    )
