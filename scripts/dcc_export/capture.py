"""Traces a StepModule into one joint forward + loss + backward graph.

Uses AOTAutograd's joint export with an empty Python decomposition table, so composite operators
are expanded but pairs such as log_softmax / its backward stay whole.
"""

import contextlib
import functools

from torch.fx.traceback import annotate, preserve_node_meta

from .errors import ExportError
from .step import CHILD

MODULE_KEY = "dcc_module"


def strip(fqn, root):
    """`fqn` as the user knows it: without our child name and without the wrapper's own prefix."""
    for prefix in (CHILD, root):
        if prefix and fqn == prefix:
            return ""
        if prefix and fqn.startswith(prefix + "."):
            fqn = fqn[len(prefix) + 1 :]
    return fqn


def capture_joint(step, flat_inputs, root):
    """Returns the joint GraphModule; its placeholders and outputs carry descriptors."""
    from torch._functorch.aot_autograd import aot_export_joint_with_descriptors

    with contextlib.ExitStack() as stack:
        stack.enter_context(_marked_modules(step, root))
        stack.enter_context(preserve_node_meta())
        try:
            joint = aot_export_joint_with_descriptors(
                stack, step, tuple(flat_inputs), decompositions={}
            )
        except ExportError:
            raise
        except Exception as error:
            raise ExportError(_tracing_failed(error)) from error
        return joint.graph_module


@contextlib.contextmanager
def _marked_modules(step, root):
    """Marks every node with the innermost module that made it, while the context is open."""
    wrapped = []
    for fqn, module in step.named_modules():
        previous = module.__dict__.get("forward")
        module.forward = _with_mark(module.forward, strip(fqn, root))
        wrapped.append((module, previous))
    try:
        yield
    finally:
        for module, previous in wrapped:
            if previous is None:
                del module.__dict__["forward"]
            else:
                module.forward = previous


def _with_mark(forward, fqn):
    @functools.wraps(forward)
    def marked(*args, **kwargs):
        with annotate({MODULE_KEY: fqn}):
            return forward(*args, **kwargs)

    return marked


def _tracing_failed(error):
    first = str(error).strip().splitlines()[0] if str(error).strip() else ""
    kind = type(error).__name__
    cure = "make the forward free of Python branches on tensor values"
    if kind in ("DataDependentOutputException", "DynamicOutputShapeException"):
        cure = (
            "a value of a tensor decides control flow or a shape; use a static formulation "
            "(for masks pass a ready 4-D mask, for experts a fixed capacity)"
        )
    return f"tracing failed with {kind}: {first}; {cure}"
