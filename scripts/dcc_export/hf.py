"""Builds a transformers model from a config and wraps it to return its loss."""

import json
import os
import sys

import torch

from . import attention, experts, unknown_keys
from .errors import MISSING, ExportError
from .headless import compute_buffers
from .tasks import EAGER_ONLY, find_task
from .workload import Workload


def read_config(path):
    """A config file, or a folder with config.json, as a dict."""
    if os.path.isdir(path):
        path = os.path.join(path, "config.json")
    try:
        with open(path, encoding="utf-8") as file:
            values = json.load(file)
    except FileNotFoundError as error:
        raise ExportError(f"no such config: {path}; give a config.json or its folder",
                          MISSING) from error
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ExportError(f"cannot read {path} as JSON: {error}") from error
    if not isinstance(values, dict) or "model_type" not in values:
        raise ExportError(f"{path} has no \"model_type\"; give a transformers config.json")
    return values


def build(values, options):
    """Returns the Workload of a config dict."""
    import transformers

    transformers.logging.set_verbosity_error()
    attention.register()
    experts.register()
    values = dict(values)
    model_type = values.pop("model_type")
    try:
        config = transformers.AutoConfig.for_model(model_type, **values)
    except Exception as error:  # strict config validation has its own exception types
        raise ExportError(f"transformers rejects the config: {_first_line(error)}") from error
    for note in unknown_keys.notes(config, values):
        print(f"export.py: warning: {note}", file=sys.stderr)
    _set_dropout(config, options.dropout)
    task = find_task(config)
    _require_positions(config, options.seq)
    generator = torch.Generator().manual_seed(options.seed)
    inputs, roles = task.inputs(config, options, generator)
    model = _construct(getattr(transformers, task.mapping), config, options)
    model.train()
    return Workload(task.wrapper(model), inputs, roles)


def _require_positions(config, seq):
    """Position tables are as long as the config says; RoBERTa's starts after the padding id."""
    limit = getattr(config, "max_position_embeddings", None)
    if limit is not None and config.model_type in ("roberta", "xlm-roberta", "camembert"):
        limit -= config.pad_token_id + 1
    if limit is not None and seq is not None and seq > limit:
        raise ExportError(
            f"--seq {seq} exceeds the model's {limit} positions; use --seq {limit} or less, or "
            "raise max_position_embeddings in the config"
        )


def _construct(auto_class, config, options):
    """A randomly initialised model with our attention and experts."""
    kinds = {"dtype": torch.float32, "attn_implementation": attention.NAMES[options.attention]}
    if config.model_type in EAGER_ONLY:
        kinds["attn_implementation"] = "eager"
    if getattr(config, "num_local_experts", None) or getattr(config, "num_experts", None):
        kinds["experts_implementation"] = experts.NAME
    torch.manual_seed(options.seed)
    try:
        if not options.headless:
            return auto_class.from_config(config, **kinds)
        with torch.device("meta"):
            model = auto_class.from_config(config, **kinds)
        compute_buffers(model)
        return model
    except Exception as error:
        raise ExportError(
            f"transformers cannot build {config.model_type!r} with our attention: "
            f"{_first_line(error)}"
        ) from error


def _first_line(error):
    return " ".join(str(error).split())[:300]


def _set_dropout(config, probability):
    """One probability for every dropout the config has."""
    for name in list(vars(config)):
        if ("dropout" in name or name.endswith("pdrop")) and isinstance(
            getattr(config, name), (int, float)
        ) and not isinstance(getattr(config, name), bool):
            setattr(config, name, probability if name != "classifier_dropout" else 0.0)
