"""A checkpoint of dcrun as the state_dict()s of PyTorch."""

import contextlib
import hashlib
import json
import os
import re

import torch

from .archived import order_of
from .checkpoint import DTYPES, INDEX, unsealed
from .errors import BAD_INPUT, MISSING, ExportError
from .optimizer_kinds import kind_named

# What reading a damaged file ends with: bytes that are no JSON, positions and sizes that no file has, other types than expected.
_UNREADABLE = (OSError, ValueError, MemoryError, OverflowError, LookupError, TypeError)
_TYPES = {short: dtype for dtype, (short, _) in DTYPES.items()}


class StoredCheckpoint:
    """All values of a checkpoint, {(kind, name): tensor}. Buffers that each rank has for itself are rank 0's."""

    def __init__(self, path):
        self.path = _find(path)
        self.index = unsealed(os.path.join(self.path, INDEX))
        self.values = {}
        self.unchecked = False  # there are checksums that cannot be computed here
        seen = {}
        for rank in self.index["ranks"]:
            manifest = os.path.join(self.path, rank["file"])
            with _opened(manifest) as file:
                if hashlib.sha256(file.read()).hexdigest() != rank["sha256"]:
                    raise _damaged(manifest, "it is not the file that the index names")
            for piece in unsealed(manifest)["pieces"]:
                if piece.get("rank", 0) == 0:
                    self._add(piece, seen)
        for key, value in self.values.items():
            if seen[key] != value.numel():
                raise _damaged(self.path, f"{seen[key]} of {value.numel()} elements of {' '.join(key)} are there")

    def kind(self, kind):
        return {name: value for (k, name), value in self.values.items() if k == kind}

    def _add(self, piece, seen):
        key, dtype = (piece["kind"], piece["of"]), _TYPES.get(piece["dtype"])
        if dtype is None:
            raise ExportError(
                f"{' '.join(key)} in {self.path} is of type {piece['dtype']!r}, which is not known here; use the scripts of the dcrun that wrote it"
            )
        if key not in self.values:
            self.values[key] = torch.empty(piece["shape"], dtype=dtype)
        file = os.path.join(self.path, piece["file"])
        content = _content(file, piece, self.values[key].element_size())
        if not self._matches(piece, content):
            raise _damaged(file, f"tensor {piece['tensor']!r} does not match its checksum")
        flat = self.values[key].view(-1)
        flat[piece["first"] : piece["first"] + piece["count"]] = torch.frombuffer(content, dtype=dtype)
        seen[key] = seen.get(key, 0) + piece["count"]

    def _matches(self, piece, content):
        if "sha256" in piece:
            return hashlib.sha256(content).hexdigest() == piece["sha256"]
        try:
            import xxhash
        except ImportError:
            self.unchecked = True
            return True
        return xxhash.xxh64(content).hexdigest() == piece["xxh64"]


def convert(checkpoint, archived, names=None, sizes=None):
    """{"model", "optimizer"}: state_dict()s; "masters": float32 masters of narrower parameters; "step", "samples", "epoch".

    The optimizer's parameters and groups are in the order of `order_of` (archived.py), so that load_state_dict takes them.
    """
    index = checkpoint.index
    parameters = checkpoint.kind("parameter")
    _require_same_model(checkpoint, archived, parameters)
    order = order_of(archived, sizes or _sizes(archived, names), names)
    kind = kind_named(index["optimizer"], checkpoint.path)
    optimizer = _optimizer(kind, index["configuration"].get("groups", []), order, parameters)
    for group in optimizer.param_groups:
        for name, parameter in zip(group.pop("names"), group["params"], strict=True):
            state = {moment: checkpoint.values[moment, name] for moment in kind.moments if (moment, name) in checkpoint.values}
            if not state:
                continue
            if kind.counts_steps:
                state = {"step": torch.tensor(float(index["step"])), **state}
            optimizer.state[parameter] = state
    model = {**parameters, **checkpoint.kind("buffer")}
    model = {name: model[name] for name in [*archived.parameters, *archived.buffers]}
    model |= {alias: model[name] for alias, name in archived.aliases.items() if name in model}
    return {
        "model": model,
        "optimizer": optimizer.state_dict(),
        "masters": checkpoint.kind("master"),
        "step": index["step"],
        "samples": index["samples"],
        "epoch": index["epoch"],
    }


def _find(path):
    """A checkpoint, or the newest of a folder of them."""
    if os.path.exists(os.path.join(path, INDEX)):
        return path
    inside = sorted(name for name in (os.listdir(path) if os.path.isdir(path) else []) if os.path.exists(os.path.join(path, name, INDEX)))
    if not inside:
        raise ExportError(f"{path} is no checkpoint and holds none", MISSING)
    return os.path.join(path, inside[-1])


@contextlib.contextmanager
def _opened(path):
    """A file that the checkpoint names, for reading."""
    try:
        file = open(path, "rb")
    except OSError as error:
        raise ExportError(f"{path}, which its checkpoint names, cannot be read: {error.strerror}; take another checkpoint", MISSING) from error
    with file:
        yield file


def _content(path, piece, size):
    """The bytes of a piece, with elements of `size` bytes, from a safetensors file, whose header may say anything."""
    with _opened(path) as file:
        try:
            header = int.from_bytes(file.read(8), "little")
            table = json.loads(file.read(header))
        except _UNREADABLE as error:
            raise _damaged(path, "its header cannot be read") from error
        try:
            file.seek(8 + header + table[piece["tensor"]]["data_offsets"][0] + piece["at"] * size)
            content = bytearray(file.read(piece["count"] * size))
        except _UNREADABLE:
            content = b""
    if len(content) != piece["count"] * size:
        raise _damaged(path, f"tensor {piece['tensor']!r} is not whole")
    return content


def _damaged(path, what):
    return ExportError(f"{path} is damaged: {what}; take another checkpoint", BAD_INPUT)


def _require_same_model(checkpoint, archived, parameters):
    wrong = sorted(set(parameters) ^ set(archived.parameters)) or [n for n, t in parameters.items() if t.shape != archived.parameters[n].shape]
    if wrong:
        raise ExportError(f"{checkpoint.path} is not of the model of {archived.path}: {wrong[0]} differs, {len(wrong)} in all")


def _sizes(archived, names):
    """Of the optimizer's groups: those of the export, of which names may change the order; without them one of all."""
    exported = [len(group) for group in archived.order or []]
    if names is not None:
        return exported if sum(exported) == len(names) else [len(names)]
    return exported if archived.order is not None else [len(archived.parameters)]


def _optimizer(kind, settings, order, parameters):
    """PyTorch's own, with the settings of the checkpoint; its groups know the `names` of their parameters."""
    groups = []
    for names in order:
        found = _settings_of(names, settings)
        params = [torch.nn.Parameter(parameters[name], requires_grad=False) for name in names]
        groups.append({"params": params, "names": names, **(kind.torch_options(found) if found else {})})
    return kind.type(groups)


def _settings_of(names, settings):
    """Those of the first group of the plan whose pattern has a name of them; the plan's group 0 is for the rest."""
    for name in names[:1]:
        for group in settings[1:]:
            if _pattern(group["match"]).fullmatch(name):
                return group
    return settings[0] if settings else {}


def _pattern(text):
    """`*` and `?` as in a shell; a backslash takes their meaning away."""
    parts = re.findall(r"\\.|.", text, re.DOTALL)
    return re.compile("".join({"*": ".*", "?": "."}.get(part) or re.escape(part[-1]) for part in parts), re.DOTALL)
