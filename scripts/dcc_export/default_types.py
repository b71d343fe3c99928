"""Types that follow torch.get_default_dtype(): an archive has them written down, for dcrun's default is float32."""

import contextlib

import torch

from .errors import ExportError


def write_down(node, module, evaluate):
    """Gives a node that makes a tensor of numbers its type as an argument. evaluate(node): its value if it were traced now.

    Raises ExportError if the node's type depends on the default otherwise, as that of a quotient of integers does.
    """
    schema = getattr(node.target, "_schema", None)
    if schema is None or not isinstance(node.meta["val"], torch.Tensor):
        return
    dtype = node.meta["val"].dtype
    if not node.all_input_nodes and any(a.name == "dtype" for a in schema.arguments):
        node.kwargs = {**node.kwargs, "dtype": dtype}
        return
    with _default_of_dcrun():
        plain = evaluate(node).dtype
    if plain != dtype:
        raise ExportError(
            f"{node.target} in {module or 'the module'} gives {_name(dtype)} because of torch.set_default_dtype(), and {_name(plain)} in dcrun; "
            "convert its operand to a floating type in the forward, for example with .float()"
        )


@contextlib.contextmanager
def _default_of_dcrun():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _name(dtype):
    return str(dtype).removeprefix("torch.")
