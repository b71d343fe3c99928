"""Which names of a module mean the same tensor.

The first name in module order is canonical; the others are aliases of it.
"""

from .capture import strip


def find_aliases(step, root):
    """Returns {duplicate fqn: canonical fqn} for parameters and buffers, in module order."""
    aliases = {}
    for named in (step.named_parameters, step.named_buffers):
        first = {}
        for fqn, tensor in named(remove_duplicate=False):
            name = strip(fqn, root)
            canonical = first.setdefault(id(tensor), name)
            if canonical != name:
                aliases[name] = canonical
    return aliases
