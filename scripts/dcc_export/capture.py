"""Traces a StepModule into one joint forward + loss + backward graph.

Uses AOTAutograd's joint export with a Python decomposition table that is almost empty, so composite operators
are expanded but pairs such as log_softmax / its backward stay whole.
"""

import contextlib
import functools
import traceback

import torch
from torch._functorch._aot_autograd.descriptors import BufferAOTInput, InputMutationAOTOutput, ParamAOTInput
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.fx.traceback import annotate, preserve_node_meta

from .bags import by_rows
from .constant_masks import DEPENDENT, ConstantMasks
from .data_attribute import assignable_data, take_back
from .decompositions import as_kernels, table
from .dropouts import by_elements
from .errors import ExportError, Unexplained, first_line, own_line
from .forwards import replaced_forwards
from .known_values import known_values
from .left_out import HOOK_CURE, LeftOut, Untouched, noticed, require_no_backward_hooks
from .margins import by_margins
from .places import Places
from .plain_calls import plain_calls
from .recomputed import written_again
from .recurrent import by_steps
from .shared_memory import share_elements
from .step import CHILD
from .transformers_parts import traceable_parts

MODULE_KEY = "dcc_module"
KEPT = "a step can only keep what the forward writes to a buffer"


def strip(fqn, root):
    """`fqn` as the user knows it: without our child name and without the wrapper's own prefix."""
    for prefix in (CHILD, root):
        if prefix and fqn == prefix:
            return ""
        if prefix and fqn.startswith(prefix + "."):
            fqn = fqn[len(prefix) + 1 :]
    return fqn


class TracedStep(torch.nn.Module):
    """Owns each parameter and buffer of a StepModule once, and lends them to it for each call.

    Tied names and submodules registered twice thereby are one input with one gradient. `names`:
    {name here: first name in the step}. What the last call lent stays there for its backward, in which
    hooks of tensors, autograd functions and checkpoints read the module again; `take_back()` ends that.
    """

    def __init__(self, step, root, knows_buffers):
        super().__init__()
        self._knows_buffers = knows_buffers
        self._lending, self._lent, self._set_data = contextlib.ExitStack(), {}, {}
        self._user = (step, Places(step))  # in a tuple: not a submodule
        self._root = root
        self.names = {}
        for name, tensor in self._user[1].parameters.items():
            self.names[f"p{len(self.names)}"] = name
            self.register_parameter(next(reversed(self.names)), tensor)
        for name, tensor in self._user[1].buffers.items():
            self.names[f"b{len(self.names)}"] = name
            self.register_buffer(next(reversed(self.names)), tensor)

    def forward(self, *tensors):
        step, places = self._user
        lent = {name: getattr(self, own) for own, name in self.names.items()}
        parameters = Untouched({strip(name, self._root): lent[name] for name in places.parameters})
        self.take_back()
        self._lent = lent
        self._lending.enter_context(places.holding(lent))
        self._set_data = self._lending.enter_context(assignable_data())
        with noticed(step.left_out), self._constant_masks(lent):
            loss = step(*tensors)
        parameters.require()
        for fqn, module in step.named_modules():
            require_no_backward_hooks(strip(fqn, self._root) or "the module", module)
        replaced = dict(places.replaced(lent))
        set_data = {name: now for name, tensor in lent.items() if (now := take_back(tensor, self._set_data)) is not None}
        self._require_apart({**lent, **set_data, **replaced}, {**set_data, **replaced})
        # All before the first is written: one may be what another held.
        replaced, set_data = ({name: _apart_from(lent, now) for name, now in new.items()} for new in (replaced, set_data))
        for name, now in replaced.items():
            step.left_out.replaced.add(strip(name, self._root))
            _write_back(name, lent[name], now, name in places.buffers)
            self._lending.enter_context(places.holding({name: lent[name]}))
        for name, now in set_data.items():
            with torch.autograd._unsafe_preserve_version_counter(lent[name]):  # to autograd, setting .data is no write
                _write_back(name, lent[name], now, name in places.buffers or not lent[name].requires_grad)
        # An input, or a view of one, has no backward to start from.
        own = loss._is_view() or any(loss is tensor for tensor in lent.values())
        return loss.clone() if own else loss

    @contextlib.contextmanager
    def _constant_masks(self, lent):
        if not self._knows_buffers:
            yield
            return
        step, places = self._user
        with ConstantMasks({lent[name]: (strip(name, self._root), value) for name, value in places.buffers.items()}) as masks:
            yield
        step.left_out.deciding |= masks.used

    def _require_apart(self, held, new):
        """Raises ExportError if a tensor of `new` {name: tensor}, which the forward put there, lies in the memory of another of `held` after it: in
        PyTorch each would follow the other from then on."""
        memory = {name: _memory(tensor) for name, tensor in held.items()}
        for name in new:
            for other in held:
                if other != name and memory[name] is not None and memory[name] == memory[other] and share_elements(held[name], held[other]):
                    here, there = strip(name, self._root), strip(other, self._root)
                    raise ExportError(
                        f"the forward puts {there} itself, or a view of it, in the place of buffer {here}, which would follow all its changes from then on; "
                        f"give {here} its own values with .clone()"
                    )

    def require_kept(self):
        """Raises ExportError if the backward has put another tensor where one was lent; what it writes in place is in the graph."""
        _, places = self._user
        for name, _ in places.replaced(self._lent):
            raise ExportError(f"a backward replaces {strip(name, self._root)}, as hooks of tensors and autograd functions may; {KEPT}")
        for name, tensor in self._lent.items():
            if id(tensor) in self._set_data:
                raise ExportError(f"a backward sets .data of {strip(name, self._root)}, as hooks of tensors and autograd functions may; {KEPT}")

    def take_back(self):
        """Every place of the module holds the module's own tensors again."""
        self._lending.close()


def _memory(tensor):
    """What tells the memory of a tensor from that of others; None of what has none."""
    if not isinstance(tensor, torch.Tensor) or tensor.numel() == 0:
        return None
    traced = tensor.elem if isinstance(tensor, FunctionalTensor) else tensor  # which .data may have set
    return traced.untyped_storage()._cdata


def _apart_from(lent, now):
    """`now`, or a copy where it lies in the memory of a tensor of `lent` {name: tensor}."""
    memory = _memory(now)
    return now.detach().clone() if memory is not None and memory in map(_memory, lent.values()) else now


def _write_back(name, lent, now, is_buffer):
    """A buffer that the forward replaced by another tensor is an update of it."""
    name = strip(name, "")
    if not is_buffer:
        raise ExportError(f"the forward replaces parameter {name}; only an optimizer may change it")
    if not isinstance(now, torch.Tensor) or now.shape != lent.shape or now.dtype != lent.dtype:
        raise ExportError(f"the forward replaces buffer {name} by something of another shape or type; keep it")
    lent.copy_(now.detach())


def capture_joint(step, flat_inputs, root):
    """Returns (joint GraphModule, names): `names` maps what its descriptors call parameters and
    buffers to their first names in the step. Frozen parameters that the forward writes to are
    buffers of `step` from then on. Where values decide something, a second trace knows those of buffers."""
    knows_buffers = False
    try:
        joint, names = _capture(step, flat_inputs, root, knows_buffers)
    except ExportError as error:
        if not isinstance(error.__cause__, DEPENDENT):
            raise
        knows_buffers = True
        joint, names = _capture(step, flat_inputs, root, knows_buffers)
    frozen = [name for name in _written_parameters(joint, names) if not step.get_parameter(name).requires_grad]
    if frozen:
        step.written_parameters += frozen
        joint, names = _capture(step, flat_inputs, root, knows_buffers)
    _require_kept_values(joint, names, step, root)
    return joint, names


def _require_kept_values(joint, names, step, root):
    """Raises ExportError if the forward writes a buffer by whose values the trace has decided something."""
    for name in sorted({strip(name, root) for name in _written(joint, names, BufferAOTInput)} & step.left_out.deciding):
        raise ExportError(
            f"the values of buffer {name} decide a shape or a choice in the forward, which also writes it; an exported step has the shapes of the first step: "
            "use a static formulation, or a buffer that stays as it is"
        )


def _written_parameters(joint, names):
    return _written(joint, names, ParamAOTInput)


def _written(joint, names, kind):
    (outputs,) = [n for n in joint.graph.nodes if n.op == "output"]
    mutated = [d.mutated_input for d in outputs.meta["desc"] if isinstance(d, InputMutationAOTOutput)]
    return [names[m.target] for m in mutated if isinstance(m, kind)]


def _capture(step, flat_inputs, root, knows_buffers):
    from torch._functorch.aot_autograd import aot_export_joint_with_descriptors

    step.left_out = LeftOut()
    with contextlib.ExitStack() as stack:
        stack.enter_context(_marked_modules(step, root))
        stack.enter_context(traceable_parts(step))
        stack.enter_context(preserve_node_meta())
        stack.enter_context(by_steps())
        stack.enter_context(by_elements())
        stack.enter_context(by_rows())
        stack.enter_context(by_margins())
        stack.enter_context(as_kernels())
        stack.enter_context(known_values())
        stack.enter_context(plain_calls())
        try:
            traced = TracedStep(step, root, knows_buffers)
            stack.callback(traced.take_back)
            joint = aot_export_joint_with_descriptors(stack, traced, tuple(flat_inputs), decompositions=table())
        except ExportError:
            raise
        except Exception as error:
            raise _tracing_failed(error, step, root) from error
        traced.require_kept()
        step.left_out.written_again |= written_again(joint.graph_module, traced.names)
        return joint.graph_module, traced.names


@contextlib.contextmanager
def _marked_modules(step, root):
    """Marks every node with the innermost module that made it, while the context is open."""
    with replaced_forwards((module, _with_mark(module.forward, strip(fqn, root))) for fqn, module in step.named_modules()):
        yield


def _with_mark(forward, fqn):
    @functools.wraps(forward)
    def marked(*args, **kwargs):
        with annotate({MODULE_KEY: fqn}):
            return forward(*args, **kwargs)

    return marked


def _tracing_failed(error, step, root):
    first, kind = first_line(error), type(error).__name__
    if "Please convert all Tensors to FakeTensors" in first:
        return ExportError(_unregistered_tensor(step, root))
    cure = None
    if kind in ("DataDependentOutputException", "DynamicOutputShapeException", "GuardOnDataDependentSymNode"):
        cure = "a value of a tensor decides control flow or a shape; use a static formulation (for masks pass a ready 4-D mask, for experts a fixed capacity)"
    elif "modified by an inplace operation" in first and step.left_out.replaced:
        name = min(step.left_out.replaced)
        first = f"the backward reads what {name} was before the forward replaced it"
        cure = f"compute with {name}.clone() there, and replace {name} as before"
    elif "modified by an inplace operation" in first:
        cure = "PyTorch cannot run this backward either; write to a copy, for example with .clone()"
    elif "derivative for " in first:
        cure = "PyTorch has none either; use another operator, or detach() what it reads"
    elif "post accumulate grad hooks" in first:
        cure = f"an exported step has no gradient hooks of parameters; {HOOK_CURE}"
    elif "Cannot backprop through mirrored meta" in first:
        cure = "return the sum of all losses instead of a backward() in the forward"
    elif kind == "KeyError" and "UntypedStorage" in first:
        cure = "write torch.no_grad() in the place of torch.inference_mode()"
    elif "NestedTensor" in first:
        cure = (
            "nested tensors cannot be traced; a torch.nn.TransformerEncoder in eval mode makes them of a padding mask, unless it has enable_nested_tensor=False"
        )
    elif "set_ on a graph input" in first:
        cure = "write the values of a parameter or buffer with copy_() in the place of set_()"
    elif "entirely functional graph" in first or "Unexpected fake buffer" in first:
        cure = "the forward writes to a tensor that is not registered with the module, or keeps one in an attribute; register a buffer and write to it in place"
    elif "TorchScript interpreter" in first:
        cure = "TorchScript cannot be traced; start Python with PYTORCH_JIT=0 in its environment, which makes a scripted function the Python it is written in"
    elif "in tensor_tracker" in first:
        cure = "the forward reads a tensor that an earlier call left in an attribute; register a buffer and write to it in place"
    known = cure is not None
    cure = cure or "eager PyTorch may run this where its tracing does not; write this line with other operators"
    line = own_line(traceback.extract_tb(error.__traceback__))
    return (ExportError if known else Unexplained)(f"tracing failed with {kind}{'' if first == kind else ': ' + first}{line}; {cure}")


def _unregistered_tensor(step, root):
    """The forward computes with a tensor that no module has registered: names those in attributes."""
    names = []
    for fqn, module in step.named_modules():
        for key, value in vars(module).items():
            held = value if isinstance(value, (list, tuple)) else [value]
            if not key.startswith("_") and any(isinstance(v, torch.Tensor) for v in held):
                names.append(f"{strip(fqn, root)}.{key}".lstrip("."))
    where = f"{names[0]} is one" if names else "it is neither an attribute nor made in forward"
    return (
        f"the forward uses a tensor that is not registered with the module ({where}); use "
        "register_buffer(name, tensor) for fixed values, nn.Parameter or nn.ParameterList for trained ones"
    )
