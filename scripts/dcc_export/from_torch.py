"""A `torch.save`d optimizer state (and model state) as a checkpoint that `dcrun --resume` takes."""

import contextlib
import os

import torch

from .archived import order_of
from .checkpoint import Checkpoint, write_checkpoint
from .errors import BAD_INPUT, MISSING, ExportError, first_line
from .optimizer_kinds import TITLES, decays_gradients, kind_of_groups
from .optimizer_state import Saved, read_state

_NOT_HERE = ("amsgrad", "maximize")


def convert(archived, optimizer_file, folder, *, key=None, weights_file=None, names=None, steps_taken=None, samples=0):
    """Writes `folder`/step-NNNNNNNN; returns (its path, sentences for the user).

    key: the member of the file that holds the optimizer's state_dict. weights_file: a model state_dict or a safetensors
    file; the archive's own weights if None. The rest as in `export_train_step`.
    """
    saved = optimizer_state_dict(optimizer_file, key)
    groups = saved["param_groups"]
    kind = _kind(groups, optimizer_file, archived)
    if names is None:
        names = _own_names(groups)
    order = order_of(archived, [len(group["params"]) for group in groups], names)
    entries = {}
    for group, group_names in zip(groups, order, strict=True):
        for number, name in zip(group["params"], group_names, strict=True):
            entries[name] = Saved(saved["state"].get(number, {}), group)
    unknown = sorted(set(saved["state"]) - {number for group in groups for number in group["params"]}, key=str)
    if unknown:
        raise ExportError(f"{optimizer_file} has state of parameter {unknown[0]}, which is in none of its groups; it is damaged")
    state = read_state(kind, entries, {name: tensor.shape for name, tensor in archived.parameters.items()}, archived.updated, steps_taken)
    if state is None:
        raise ExportError(f"{optimizer_file} is of an optimizer that has taken no step; begin with dcrun --weights")
    parameters, buffers, masters = _weights(archived, weights_file)
    path = write_checkpoint(
        folder,
        Checkpoint(
            step=state.step,
            samples=samples,
            optimizer=kind.name,
            parameters=parameters,
            buffers=buffers,
            hidden=archived.hidden,
            moments=state.moments,
            aliases=archived.aliases,
            masters=masters,
        ),
    )
    return path, state.notes + _settings(groups)


def _own_names(groups):
    """The names of all parameters in the optimizer's order, where the file has them: torch.distributed.checkpoint has names in the
    place of numbers, an optimizer that was given named_parameters() saves both. Else None.
    """
    held = [number for group in groups for number in group["params"]]
    if held and all(isinstance(number, str) for number in held):
        return held
    if all("param_names" in group for group in groups):
        return [name for group in groups for name in group["param_names"]]
    return None


def optimizer_state_dict(path, key):
    loaded = load(path)
    if key is not None:
        if not isinstance(loaded, dict) or key not in loaded:
            raise ExportError(f"{path} has no {key!r}; it has {_members(loaded)}")
        loaded = loaded[key]
    if isinstance(loaded, dict) and isinstance(loaded.get("state"), dict) and isinstance(loaded.get("param_groups"), list):
        return loaded
    raise ExportError(f"{path} holds no optimizer.state_dict(), but {_members(loaded)}; name the member that does with --key")


def load(path):
    """What torch.save wrote, without running code of the file."""
    with _readable(path, "save state_dict()s with torch.save"):
        return torch.load(path, map_location="cpu", weights_only=True)


@contextlib.contextmanager
def _readable(path, cure):
    """While open, `path` is read: libraries raise what their parsers raise."""
    if not os.path.exists(path):
        raise ExportError(f"{path} is missing; give a file that is there", MISSING)
    try:
        yield
    except Exception as error:
        raise ExportError(f"{path} cannot be read: {first_line(error)}; {cure}", BAD_INPUT) from error


def _members(loaded):
    return ", ".join(map(repr, list(loaded)[:6])) if isinstance(loaded, dict) else f"a {type(loaded).__name__}"


def _kind(groups, path, archived):
    kind = kind_of_groups(groups)
    if kind is None:
        raise ExportError(f"{path} is not of {TITLES}: its groups have {', '.join(k for k in groups[0] if k != 'params') if groups else 'nothing'}")
    planned = archived.optimizer.get("optimizer", {}).get("kind")
    if planned not in (None, kind.name):
        raise ExportError(f"{path} is of {kind.name}, the archive's optimizer is {planned}; export again with the optimizer that was trained with")
    for number, group in enumerate(groups):
        wrong = [option for option in _NOT_HERE if group.get(option)]
        if kind.name == "adamw" and decays_gradients(group):
            wrong.append("Adam's weight decay (that of AdamW is decoupled)")
        if wrong:
            raise ExportError(f"group {number} of {path} uses {', '.join(wrong)}, which dcrun does not have")
    return kind


def _weights(archived, path):
    """(parameters, buffers, float32 masters of parameters that are narrower)"""
    if path is None:
        return archived.parameters, archived.buffers, {}
    given = _load_weights(path)
    unknown = sorted(name for name in given if archived.canonical(name) not in archived.parameters.keys() | archived.buffers.keys())
    if unknown:
        raise ExportError(f"{path} has {unknown[0]}, which the model of {archived.path} lacks ({len(unknown)} such); give the state_dict of this model")
    by_name = {archived.canonical(name): tensor for name, tensor in given.items()}
    masters = {
        name: by_name[name]
        for name, tensor in archived.parameters.items()
        if name in by_name and tensor.dtype is not torch.float32 and by_name[name].dtype is torch.float32 and name in archived.updated
    }
    found = []
    for tensors in (archived.parameters, archived.buffers):
        taken = {}
        for name, tensor in tensors.items():
            if name not in by_name:
                raise ExportError(f"{path} lacks {name}; give the state_dict of the model of {archived.path}")
            if by_name[name].shape != tensor.shape:
                raise ExportError(f"{name} has shape {list(by_name[name].shape)} in {path} and {list(tensor.shape)} in {archived.path}")
            taken[name] = by_name[name].to(tensor.dtype)
        found.append(taken)
    return *found, masters


def _load_weights(path):
    if path.endswith(".safetensors"):
        from safetensors.torch import load_file

        with _readable(path, "save it again, or give what torch.save made of the state_dict()"):
            return load_file(path)
    loaded = load(path)
    if not isinstance(loaded, dict) or not loaded or not all(isinstance(v, torch.Tensor) for v in loaded.values()):
        raise ExportError(f"{path} holds no model.state_dict(), but {_members(loaded)}; save that alone")
    return loaded


def _settings(groups):
    """Settings are those of the plan: what the file has is said, so that it can be compared."""
    told = []
    for group in groups:
        options = ("lr", "betas", "eps", "weight_decay", "momentum", "dampening", "nesterov")
        told.append(", ".join(f"{option} {group[option]}" for option in options if option in group))
    scheduled = any("initial_lr" in group for group in groups)
    sentences = [f"settings are not taken over, those of the plan hold; the optimizer had {'; '.join(dict.fromkeys(told))}"]
    if scheduled:
        sentences.append("a learning-rate scheduler was attached; the plan's schedule (dcc compile --config) goes on at the checkpoint's step")
    return sentences
