"""Writes archives: atomically, and the same bytes for the same program."""

import contextlib
import json
import os
import shutil
import tempfile

import torch

from .errors import CANNOT_WRITE, ExportError

EXTRA_NAME = "dcc.json"


def canonical_json(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


@contextlib.contextmanager
def replacing(path):
    """Yields a temporary path with the same base name; on success it replaces `path`.

    The base name matters: the writer puts it into the archive as the root folder.
    """
    path = os.path.abspath(path)
    folder = os.path.dirname(path)
    if os.path.isdir(path):
        raise ExportError(f"cannot write {path}: it is a folder; name a file", CANNOT_WRITE)
    try:
        temporary = tempfile.mkdtemp(prefix=".dcc_export_", dir=folder)
    except OSError as error:
        raise ExportError(
            f"cannot write {path}: {error.strerror}; choose another -o", CANNOT_WRITE
        ) from error
    try:
        partial = os.path.join(temporary, os.path.basename(path))
        yield partial
        with open(partial, "rb") as written:
            os.fsync(written.fileno())
        os.replace(partial, path)
    except OSError as error:
        raise ExportError(
            f"cannot write {path}: {error.strerror}; free space or choose another -o", CANNOT_WRITE
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def save_program(exported, description, path, device=None):
    """Saves the program with its weights and `extra/dcc.json`."""
    extra = {EXTRA_NAME: canonical_json(description)}
    with replacing(path) as partial:
        try:
            torch.export.save(exported, partial, extra_files=extra)
        except RuntimeError as error:  # the zip writer reports a full disk this way
            first = str(error).strip().splitlines()[0]
            raise ExportError(f"cannot write {path}: {first}", CANNOT_WRITE) from error
