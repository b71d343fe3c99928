"""What an archive says of its model: names, shapes, values, and the order in which an optimizer got its parameters."""

import dataclasses
import json
import logging
import os

import torch
from torch.export.graph_signature import InputKind, OutputKind

from .errors import BAD_INPUT, MISSING, ExportError, first_line
from .plain_calls import without_wrapper


@dataclasses.dataclass
class Archived:
    """Names are canonical; all tensors have the archive's values."""

    path: str
    parameters: dict  # {name: tensor}, in the archive's order
    buffers: dict  # persistent
    hidden: dict  # other buffers
    updated: list  # parameters that the step gives a gradient
    aliases: dict  # {tied name: canonical name}
    optimizer: dict  # in the form of train.json; empty if none was given to the export
    order: list  # names of each group of that optimizer, or None

    def canonical(self, name):
        """Also of a name in the state_dict() of a compiled module."""
        name = without_wrapper(name)
        return self.aliases.get(name, name)


def read_archive(path):
    if not os.path.exists(path):
        raise ExportError(f"{path} is missing; give the archive that scripts/export.py wrote", MISSING)
    extra = {"dcc.json": ""}
    logging.getLogger("torch.export").setLevel(logging.CRITICAL)  # it logs tracebacks of what is raised as well
    try:
        program = torch.export.load(path, extra_files=extra)
        description = json.loads(extra["dcc.json"])
    except Exception as error:  # torch raises many kinds for files of another format
        raise ExportError(f"{path} cannot be read as an archive with weights: {first_line(error)}", BAD_INPUT) from error
    archived = Archived(path, {}, {}, {}, [], description.get("aliases", {}), description.get("optimizer", {}), description.get("optimizer_order"))
    for spec in program.graph_signature.input_specs:
        if spec.kind is InputKind.PARAMETER:
            archived.parameters[spec.target] = program.state_dict[spec.target].detach()
        elif spec.kind is InputKind.BUFFER:
            stored = program.state_dict if spec.persistent else program.constants
            (archived.buffers if spec.persistent else archived.hidden)[spec.target] = stored[spec.target].detach()
    archived.updated = [s.target for s in program.graph_signature.output_specs if s.kind is OutputKind.GRADIENT_TO_PARAMETER]
    return archived


def order_of(archived, sizes, names=None):
    """The names of each group's parameters of an optimizer whose groups have `sizes` parameters.

    names: all of them in the optimizer's order, from the user. Else the order is that of the optimizer that was given to the export, or, of one
    group, that of the module's parameters: all, or those that are trained.
    """
    if names is not None:
        _require(len(names) == sum(sizes), f"{len(names)} names are given for {sum(sizes)} parameters of the optimizer", archived)
        flat = [archived.canonical(name) for name in names]
    elif archived.order is not None:
        _require(
            [len(group) for group in archived.order] == list(sizes),
            f"the optimizer has groups of {_list(sizes)} parameters, that of the export had {_list(map(len, archived.order))}",
            archived,
        )
        flat = [name for group in archived.order for name in group]
    else:
        _require(len(sizes) == 1, f"the optimizer has {len(sizes)} groups, and the archive does not say which parameters are in which", archived)
        candidates = (list(archived.parameters), archived.updated)
        flat = next((c for c in candidates if len(c) == sizes[0]), None)
        _require(
            flat is not None, f"the optimizer has {sizes[0]} parameters, the archive {len(candidates[0])}, of which {len(candidates[1])} are trained", archived
        )
    for name in flat:
        _require(name in archived.parameters, f"there is no parameter {name} in the archive", archived)
    _require(len(set(flat)) == len(flat), "a parameter is named twice", archived)
    flat = iter(flat)
    return [[next(flat) for _ in range(size)] for size in sizes]


def _require(condition, what, archived):
    if not condition:
        raise ExportError(
            f"{what} ({archived.path}); give --names FILE, a JSON list of the names in the optimizer's order: "
            "names = {p: n for n, p in model.named_parameters()}; json.dump([names[p] for g in optimizer.param_groups for p in g['params']], file)"
        )


def _list(values):
    return ", ".join(str(value) for value in values)
