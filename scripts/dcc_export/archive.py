"""Writes archives: atomically, and the same bytes for the same program."""

import contextlib
import fcntl
import json
import os
import shutil
import tempfile
import zipfile

import torch

from .errors import CANNOT_WRITE, ExportError, explained, first_line

EXTRA_NAME = "dcc.json"
_TEMPORARY = ".dcc_export_"  # how names of folders under construction begin
EVALUATION_PREFIX = "evaluation."  # of constants that only the evaluation reads

# Records that the zip writer adds when it is closed.
_WRITTEN_BY_ITSELF = (".data/version", ".data/serialization_id", "byteorder", "version")


def canonical_json(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


@contextlib.contextmanager
def replacing(path):
    """Yields a temporary path with the same base name; on success it replaces `path`.

    The base name matters: the writer puts it into the archive as the root folder.
    """
    path = os.path.realpath(path)  # a link stays one, and what it names is replaced
    folder = os.path.dirname(path)
    if os.path.isdir(path):
        raise ExportError(f"cannot write {path}: it is a folder; name a file", CANNOT_WRITE)
    if os.path.exists(path) and not os.path.isfile(path):
        raise ExportError(f"cannot write {path}: it is a device, a pipe or a socket; name a file", CANNOT_WRITE)
    try:
        _remove_leftovers(folder)
        temporary, lock = _locked_folder(folder)
    except OSError as error:
        raise ExportError(f"cannot write {path}: {error.strerror}; choose another -o", CANNOT_WRITE) from error
    try:
        partial = os.path.join(temporary, os.path.basename(path))
        yield partial
        with open(partial, "rb") as written:
            os.fsync(written.fileno())
        os.replace(partial, path)
    except OSError as error:
        raise ExportError(f"cannot write {path}: {error.strerror}; free space or choose another -o", CANNOT_WRITE) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        os.close(lock)


def _locked_folder(folder):
    """A new temporary folder in `folder` and the descriptor that holds its lock: who was killed holds none."""
    while True:
        temporary = tempfile.mkdtemp(prefix=_TEMPORARY, dir=folder)
        lock = os.open(temporary, os.O_RDONLY)
        with contextlib.suppress(OSError):  # a file system without locks: there nothing is taken for a leftover
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.isdir(temporary):
            return temporary, lock
        os.close(lock)  # another process took it for a leftover before the lock


def _remove_leftovers(folder):
    """Removes what exports left in `folder` that were killed."""
    try:
        names = [name for name in os.listdir(folder) if name.startswith(_TEMPORARY)]
    except OSError:  # what is wrong with the folder, making a file in it says
        return
    for name in names:
        with contextlib.suppress(OSError):  # gone, of another user, or being written
            path = os.path.join(folder, name)
            lock = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(lock)


def save_program(exported, description, path, device=None, verify=None, texts=None):
    """Saves the program with its weights and `extra/dcc.json`; `device` replaces cpu in it.

    texts: {name: content} of further entries below extra/.
    verify: called with the finished file before it takes its place; may raise.
    """
    extra = {EXTRA_NAME: canonical_json(description), **_placed(texts, device)}
    with replacing(path) as partial:
        with explained("writing the archive"), zip_written(path):
            with without_pickles():
                torch.export.save(exported, partial, extra_files=extra)
            if device is not None:
                _rewrite_model(partial, lambda text: _on_device(text, device))
        if verify is not None:
            verify(partial)


@contextlib.contextmanager
def zip_written(path):
    """PyTorch's writers report a full disk as a RuntimeError; SerializeError is one too, and says something else.

    The writer's destructor tries again to end the file and aborts the process where that fails too: `holds_writer` of the error.
    """
    try:
        yield
    except RuntimeError as error:
        if type(error) is not RuntimeError:
            raise
        failure = ExportError(f"cannot write {path}: {first_line(error)}; free space or choose another -o", CANNOT_WRITE)
        failure.holds_writer = True  # by its traceback
        raise failure from error


def save_headless(exported, description, path, device=None, texts=None):
    """Saves graph, shapes and small constants, deflated; no weights and no sample inputs. `texts`: as in `save_program`."""
    from torch._export.serde.serialize import _to_json_bytes

    model = _to_json_bytes(_serialize_graph(exported))
    model = _compact(model) if device is None else _on_device(model, device)
    constants = _constants(exported)
    entries = {
        "archive_format": b"pt2",
        "archive_version": b"0",
        ".data/version": b"6\n",
        "byteorder": b"little",
        "models/model.json": model,
        "data/weights/model_weights_config.json": _config(exported.state_dict, "weight_"),
        "data/constants/model_constants_config.json": _config(constants, "tensor_"),
        **{f"data/constants/tensor_{i}": _raw(t) for i, t in enumerate(constants.values())},
        f"extra/{EXTRA_NAME}": canonical_json(description).encode(),
        **{f"extra/{name}": text.encode() for name, text in _placed(texts, device).items()},
    }
    root = os.path.splitext(os.path.basename(path))[0]
    with replacing(path) as partial, zipfile.ZipFile(partial, "w") as archive:
        for name, content in entries.items():
            entry = zipfile.ZipInfo(f"{root}/{name}", date_time=(1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content, compresslevel=6)


def _serialize_graph(exported):
    from torch._export.serde.serialize import ExportedProgramSerializer

    with explained("writing the graph"), without_pickles(samples=False):
        return ExportedProgramSerializer().serialize(exported).exported_program


@contextlib.contextmanager
def without_pickles(samples=True):
    """torch pickles weights next to the records and throws that away; it costs twice the memory."""
    from torch._export.serde import serialize

    original = serialize.serialize_torch_artifact

    def samples_only(artifact, *args, **kwargs):
        keep = samples and not isinstance(artifact, dict)
        return original(artifact, *args, **kwargs) if keep else b""

    serialize.serialize_torch_artifact = samples_only
    try:
        yield
    finally:
        serialize.serialize_torch_artifact = original


def _constants(exported):
    used = {s.target for s in exported.graph_signature.input_specs}
    return {k: v for k, v in exported.constants.items() if k in used or k.startswith(EVALUATION_PREFIX)}


def _placed(texts, device):
    """The further entries, with every cpu device replaced."""
    return {k: v if device is None else _on_device(v, device).decode() for k, v in (texts or {}).items()}


def _config(tensors, prefix):
    """The payload table: one record per tensor, the same one for tied names."""
    from torch._export.serde.schema import PayloadConfig, PayloadMeta
    from torch._export.serde.serialize import _to_json_bytes, serialize_tensor_meta

    config, index = {}, {}
    for fqn, tensor in tensors.items():
        config[fqn] = PayloadMeta(
            path_name=f"{prefix}{index.setdefault(id(tensor), len(index))}",
            is_param=isinstance(tensor, torch.nn.Parameter),
            use_pickle=False,
            tensor_meta=serialize_tensor_meta(tensor),
        )
    return _compact(_to_json_bytes(PayloadConfig(config=config)))


def _raw(tensor):
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def _compact(text):
    return json.dumps(json.loads(text), separators=(",", ":"), allow_nan=False).encode()


def _on_device(text, device):
    """The graph's JSON with every cpu device replaced."""

    def moved(entry):
        if set(entry) == {"type", "index"} and entry["type"] == "cpu":
            return {"type": device, "index": None}
        return entry

    return json.dumps(json.loads(text, object_hook=moved), separators=(",", ":"), allow_nan=False).encode()


def _rewrite_model(path, change):
    """Rewrites the archive at `path` with models/model.json changed."""
    plain = os.path.join(os.path.dirname(path), "unchanged")
    os.replace(path, plain)
    reader = torch._C.PyTorchFileReader(plain)
    writer = torch._C.PyTorchFileWriter(path)
    writer.set_min_version(6)
    for name in reader.get_all_records():
        if name in _WRITTEN_BY_ITSELF:
            continue
        content = reader.get_record(name)
        content = change(content) if name == "models/model.json" else content
        writer.write_record(name, content, len(content))
    writer.write_end_of_file()
