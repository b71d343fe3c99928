"""The one exception of the exporter: a sentence for the user and an exit code."""

import contextlib
import os
import traceback

OK = 0
CHECK_FAILED = 1
USAGE = 64
BAD_INPUT = 65
MISSING = 66
OUR_BUG = 70
CANNOT_WRITE = 73

REPORT_IT = "the exporter did not foresee it: leave out parts of the module to find the one that causes it, write that otherwise, and report it"


class ExportError(Exception):
    """Something the user can act on. `exit_code` is what the command returns."""

    def __init__(self, sentence, exit_code=BAD_INPUT):
        super().__init__(sentence)
        self.exit_code = exit_code


class Unexplained(ExportError):
    """Tracing failed with something that this package does not know: the module itself may be at fault."""


@contextlib.contextmanager
def explained(what, cure=REPORT_IT, exit_code=OUR_BUG):
    """An exception that is no sentence for users, of PyTorch's export or of ours, becomes one: `what` failed with it. Those of the
    operating system go on as they are."""
    try:
        yield
    except (ExportError, OSError):
        raise
    except Exception as error:
        raise ExportError(f"{what} failed with {brief(error)}; {cure}", exit_code) from error


def of_system(error):
    """The ExportError for an OSError that was met where it could not be said which file of the user's it concerns."""
    reason = error.strerror or first_line(error)
    if error.filename is not None and isinstance(error, (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)):
        return ExportError(f"cannot read {error.filename}: {reason}; give a file that is there and may be read", MISSING)
    where = "" if error.filename is None else f" {error.filename}"
    return ExportError(f"cannot write{where}: {reason}; free space, or name another output, and another folder for temporary files (TMPDIR)", CANNOT_WRITE)


def first_line(error):
    """The first line of what an exception says; the name of its type where it says nothing."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def own_line(frames):
    """ " in FILE:LINE: CODE" of the last of `frames` outside of PyTorch and of this package; empty if there is none."""
    import torch

    others = tuple(os.path.dirname(os.path.abspath(path)) + os.sep for path in (torch.__file__, __file__))
    frames = [f for f in frames if not f.filename.startswith((*others, "<"))]
    return f" in {os.path.basename(frames[-1].filename)}:{frames[-1].lineno}: {frames[-1].line}" if frames else ""


def brief(error):
    """ "KeyError: torch.uint64 at serialize.py:361": the kind of an exception, the first line of what it says, and where it was raised."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{kind_and_line(error)} at {os.path.basename(place.filename)}:{place.lineno}"


def kind_and_line(error):
    """ "KeyError: torch.uint64", or "KeyError" where it says nothing."""
    kind, line = type(error).__name__, first_line(error)
    return kind if line == kind else f"{kind}: {line}"
