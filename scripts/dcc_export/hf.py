"""Builds a transformers model from a config and wraps it to return its loss."""

import contextlib
import copy
import json
import os
import sys

import torch

from . import experts, separate_experts, unknown_keys
from .errors import MISSING, USAGE, ExportError, first_line
from .headless import compute_buffers
from .randomness import dropout_rates, set_rates
from .stock import Stock
from .tasks import find_task, reads_tokens, require_fitting
from .training_step import Workload


def read_config(path):
    """A config file, or a folder with config.json, as a dict."""
    if os.path.isdir(path):
        path = os.path.join(path, "config.json")
    try:
        with open(path, encoding="utf-8") as file:
            values = json.load(file)
    except FileNotFoundError as error:
        raise ExportError(f"no such config: {path}; give a config.json or its folder", MISSING) from error
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ExportError(f"cannot read {path} as JSON: {error}") from error
    if not isinstance(values, dict) or "model_type" not in values:
        raise ExportError(f'{path} has no "model_type"; give a transformers config.json')
    return values


def build(values, options, attention=None):
    """Returns the Workload of a config dict. attention: transformers' name; None: its default."""
    experts.register()
    config = make_config(values)
    for note in unknown_keys.notes(config, values):
        print(f"export.py: warning: {note}", file=sys.stderr)
    task, notes = find_task(config)
    require_fitting(task, options)
    set_rates(config, options.dropout)
    generator = torch.Generator().manual_seed(options.seed)
    inputs, roles = task.inputs(config, options, generator)
    model = _construct(task, config, options, attention)
    _require_positions(model, options.seq)
    module = task.wrapper(model.train(), options.attention == "cuda-flash").train()
    limits = experts.notes(config, options.batch * (options.seq or 1))
    stock = Stock(values, task, options.seed, altered=options.dropout > 0 or bool(limits))
    return Workload(module, inputs, roles, notes=notes + limits, stock=stock)


def require_tokens(path):
    """Refuses the config of a model that reads none, where their number is given."""
    config = make_config(read_config(path))
    if not reads_tokens(find_task(config)[0]):
        raise ExportError(f"the {config.model_type!r} config is of a model of pictures, which reads no tokens; leave --seq out", USAGE)


def dropout_notes(values):
    """A sentence for people if a config dict has dropout, of which the step has as much as --dropout says."""
    rates = dropout_rates(make_config(values))
    if not rates:
        return []
    shown = ", ".join(f"{name} {rate:g}" for name, rate in list(rates.items())[:3]) + (", ..." if len(rates) > 3 else "")
    return [f"the config's dropout ({shown}) is left out of the step; --dropout P gives every dropout the rate P"]


def make_config(values):
    """A transformers config object from a dict with "model_type"."""
    import transformers

    transformers.logging.set_verbosity_error()
    try:
        return transformers.AutoConfig.for_model(**copy.deepcopy(values))
    except Exception as error:  # strict config validation has its own exception types
        raise ExportError(f"transformers rejects the config: {_on_one_line(error)}") from error


def _require_positions(model, seq):
    """Raises if `seq` exceeds the model's positions. A position table has max_position_embeddings
    rows; if it has a padding row, the positions start after that row."""
    limit = getattr(model.config, "max_position_embeddings", None) or 0
    for module in model.modules():
        if isinstance(module, torch.nn.Embedding) and module.num_embeddings == limit:
            if module.padding_idx is not None:
                limit -= module.padding_idx + 1
                break
    if seq is not None and 0 < limit < seq:
        raise ExportError(f"--seq {seq} exceeds the model's {limit} positions; use --seq {limit} or less, or raise max_position_embeddings in the config")


def _construct(task, config, options, attention):
    """A randomly initialised model, with our experts where it lets them be chosen."""
    kinds = {"dtype": torch.float32}
    if attention is not None:
        kinds["attn_implementation"] = attention
    torch.manual_seed(options.seed)
    try:
        with torch.device("meta") if options.headless else contextlib.nullcontext():
            model = task.auto_class().from_config(config, **kinds)
        if options.headless:
            compute_buffers(model)
        if model._can_set_experts_implementation():
            model.set_experts_implementation(experts.NAME)
            separate_experts.separate(model, options.headless)
        return model
    except ExportError:
        raise
    except Exception as error:
        raise ExportError(f"transformers cannot build {config.model_type!r}: {_on_one_line(error)}") from error


def _on_one_line(error):
    """What transformers says; the reason may be on the second line."""
    return " ".join(str(error).split())[:300] or first_line(error)
