"""The user's module as PyTorch itself runs it."""

import contextlib
import traceback

import torch

from .errors import ExportError, Unexplained, kind_and_line, own_line
from .places import Places, copies


@contextlib.contextmanager
def run_by_pytorch():
    """While open, PyTorch runs the module: an exception of it becomes a sentence. Those of the operating system go on as they are."""
    try:
        yield
    except (ExportError, OSError):
        raise
    except Exception as error:
        line = own_line(traceback.extract_tb(error.__traceback__))
        raise ExportError(f"the module itself fails in PyTorch with {kind_and_line(error)}{line}; correct it there") from error


@contextlib.contextmanager
def own_faults_first(step, examples, seed):
    """While open, what was not foreseen makes PyTorch run one step of the module, forward and backward: the exception of that, if it has one, is
    the one that is raised. The module's tensors stay as they are."""
    try:
        yield
    except (ExportError, OSError) as error:
        if isinstance(error, Unexplained):
            _run(step, examples, seed)
        raise
    except Exception:
        _run(step, examples, seed)
        raise


def _run(step, examples, seed):
    places = Places(step)
    with run_by_pytorch(), torch.random.fork_rng(devices=[]), torch.enable_grad(), places.holding(copies(places.tensors())):
        torch.manual_seed(seed)
        step(*[t.clone() for t in examples]).backward()
