"""Writes checkpoints as dcrun does (runtime/checkpoint/README.md): one rank's, with SHA-256 as checksum of every piece."""

import dataclasses
import errno
import hashlib
import json
import os
import shutil

import torch

from .archive import canonical_json
from .errors import CANNOT_WRITE, ExportError

WEIGHTS, SHARD, MANIFEST, INDEX = "model.safetensors", "rank-0-of-1.safetensors", "rank-0-of-1.json", "index.json"
# torch's type: (a manifest's name of it, safetensors' name of it)
DTYPES = {
    torch.float32: ("f32", "F32"),
    torch.float64: ("f64", "F64"),
    torch.float16: ("f16", "F16"),
    torch.bfloat16: ("bf16", "BF16"),
    torch.int8: ("i8", "I8"),
    torch.int16: ("i16", "I16"),
    torch.int32: ("i32", "I32"),
    torch.int64: ("i64", "I64"),
    torch.uint8: ("u8", "U8"),
    torch.bool: ("bool", "BOOL"),
}


@dataclasses.dataclass
class Checkpoint:
    """A training state. Names are canonical: a tied tensor is in it once."""

    step: int  # updates that the parameters have seen
    samples: int  # that they have seen, of the first epoch
    optimizer: str  # "adamw", "sgd"
    parameters: dict  # {name: tensor}
    buffers: dict
    hidden: dict  # buffers that are not persistent
    moments: dict  # {parameter: {PyTorch's name: float32 tensor}}
    aliases: dict  # {tied name: canonical name}
    masters: dict = dataclasses.field(default_factory=dict)  # {parameter: float32 tensor}, where it is not the parameter's own value


def write_checkpoint(root, checkpoint):
    """Writes the folder `root`/step-NNNNNNNN and returns its path; it appears whole or not at all.

    It replaces one of the same step that was made here, too. A checkpoint of a training run, and one of a later step (which
    `--resume` would take), are an error.
    """
    path = os.path.join(root, f"step-{checkpoint.step:08}")
    partial, removed = (os.path.join(root, f".step-{checkpoint.step:08}.{ending}") for ending in ("partial", "removed"))
    try:
        os.makedirs(root, exist_ok=True)
        _require_room(root, path)
        for leftover in (partial, removed):
            shutil.rmtree(leftover, ignore_errors=True)
        os.mkdir(partial)
        try:
            _write_files(partial, checkpoint)
            if os.path.exists(path):
                os.rename(path, removed)
            os.rename(partial, path)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
            shutil.rmtree(removed, ignore_errors=True)
        _flush(root)
    except OSError as error:
        raise ExportError(f"cannot write the checkpoint {path}: {error.strerror}; free space or name another folder", CANNOT_WRITE) from error
    return path


def _require_room(root, path):
    whole = sorted(name for name in os.listdir(root) if name.startswith("step-") and os.path.exists(os.path.join(root, name, INDEX)))
    later = [name for name in whole if name > os.path.basename(path)]
    if later:
        raise ExportError(f"{root} has the later checkpoint {later[-1]}, which --resume would take; remove it or name another folder", CANNOT_WRITE)
    if os.path.exists(path) and (os.path.basename(path) not in whole or unsealed(os.path.join(path, INDEX))["plan"]):
        raise ExportError(f"{path} is there already and was not made from PyTorch's state; name another folder", CANNOT_WRITE)


def _write_files(folder, checkpoint):
    values = [("parameter", name, tensor) for name, tensor in checkpoint.parameters.items()]
    values += [("buffer", name, tensor) for name, tensor in checkpoint.buffers.items()]
    metadata = {"format": "pt", "plan": "", "step": str(checkpoint.step)}
    if checkpoint.aliases:
        metadata["aliases"] = canonical_json(checkpoint.aliases)
    files, pieces = [], []
    _write_tensors(folder, WEIGHTS, [(name, kind, name, tensor) for kind, name, tensor in values], metadata, files, pieces)
    own = [("buffer", name, tensor) for name, tensor in checkpoint.hidden.items()]
    own += [
        ("master", name, checkpoint.masters.get(name, tensor.float()))
        for name, tensor in checkpoint.parameters.items()
        if name in checkpoint.moments and tensor.dtype is not torch.float32
    ]
    own += [(key, name, tensor) for name, moments in checkpoint.moments.items() for key, tensor in moments.items()]
    own = [entry for entry in own if entry[2].numel()]
    about = {f"{kind}/{name}": canonical_json({"kind": kind, "of": name, "first": 0, "shape": list(tensor.shape)}) for kind, name, tensor in own}
    if own:
        _write_tensors(folder, SHARD, [(f"{kind}/{name}", kind, name, tensor) for kind, name, tensor in own], about, files, pieces)
    sha256 = _write_sealed(folder, MANIFEST, "dcc-checkpoint-rank", {"files": files, "pieces": pieces})
    _write_sealed(
        folder,
        INDEX,
        "dcc-checkpoint",
        {
            "step": checkpoint.step,
            "samples": checkpoint.samples,
            "epoch": 0,
            "samples_in_epoch": checkpoint.samples,
            "seed": "0",
            "optimizer": checkpoint.optimizer,
            "model": "",
            "model_parts": [],
            "plan": "",
            "world": 1,
            "configuration": {},
            "ranks": [{"file": MANIFEST, "sha256": sha256}],
        },
    )
    _flush(folder)


def _write_tensors(folder, file, tensors, metadata, files, pieces):
    """A safetensors file of [(name in the file, kind, name of the value, tensor)]; adds what a manifest says of it."""
    tensors = sorted(tensors, key=lambda t: (-t[3].element_size(), t[0]))
    header, offset = {"__metadata__": metadata}, 0
    for name, _, _, tensor in tensors:
        size = tensor.numel() * tensor.element_size()
        shape = list(tensor.shape) if file == WEIGHTS else [tensor.numel()]
        header[name] = {"dtype": DTYPES[tensor.dtype][1], "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    head = len(text).to_bytes(8, "little") + text
    with open(os.path.join(folder, file), "xb") as out:
        out.write(head)
        for name, kind, value, tensor in tensors:
            if not tensor.numel():
                continue  # no piece can hold it
            content = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
            out.write(content)
            pieces.append(
                {
                    "file": file,
                    "tensor": name,
                    "at": 0,
                    "kind": kind,
                    "of": value,
                    "dtype": DTYPES[tensor.dtype][0],
                    "shape": list(tensor.shape),
                    "first": 0,
                    "count": tensor.numel(),
                    "sha256": hashlib.sha256(content).hexdigest(),
                }
            )
        _finish(out)
    files.append({"file": file, "bytes": len(head) + offset, "header_bytes": len(head), "header_sha256": hashlib.sha256(head).hexdigest()})


def _write_sealed(folder, file, form, body):
    """JSON whose first line has the SHA-256 of the rest; returns that of the whole file."""
    rest = b'"body":' + json.dumps(body).encode() + b"}\n"
    text = f'{{"format":"{form}","version":1,"sha256":"{hashlib.sha256(rest).hexdigest()}",\n'.encode() + rest
    with open(os.path.join(folder, file), "xb") as out:
        out.write(text)
        _finish(out)
    return hashlib.sha256(text).hexdigest()


def unsealed(path):
    """The body of a sealed JSON file. ExportError if it is damaged."""
    with open(path, "rb") as file:
        first, rest = file.readline(), file.read()
    try:
        document = json.loads(first + rest)
        if document["sha256"] == hashlib.sha256(rest).hexdigest() and document["version"] == 1:
            return document["body"]
    except (ValueError, KeyError, TypeError):
        pass
    raise ExportError(f"{path} is damaged, or of a newer version")


def _finish(file):
    file.flush()
    os.fsync(file.fileno())


def _flush(folder):
    """Entries of a folder reach the disk."""
    entries = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(entries)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(entries)
