"""What a transformers architecture is trained for, and the inputs of that step."""

import dataclasses

import torch

from . import losses
from .errors import USAGE, ExportError


@dataclasses.dataclass
class Task:
    mapping: str  # auto class
    wrapper: type
    inputs: object  # function(config, options, generator) -> ({name: tensor}, {name: role})

    def auto_class(self):
        import transformers

        return getattr(transformers, self.mapping)


def _integers(high, shape, generator):
    return torch.randint(0, high, shape, generator=generator)


def _lm_inputs(config, options, generator):
    vocab = config.get_text_config().vocab_size
    shape = (options.batch, options.seq)
    tokens = _integers(vocab, shape, generator)
    bound = {"low": 0, "high": vocab}
    roles = {"input_ids": {"role": "tokens", **bound}, "labels": {"role": "labels", **bound}}
    if options.headless or options.attention != "cpu":
        roles["labels"]["labels"] = "same"  # transformers' models shift; here they cannot be tried
    if options.labels is not None:
        roles["labels"]["labels"] = options.labels
    return {"input_ids": tokens, "labels": tokens.clone()}, roles


def _masked_lm_inputs(config, options, generator):
    inputs, roles = _lm_inputs(config, options, generator)
    lengths = _integers(options.seq // 2 + 1, (options.batch, 1), generator)
    mask = (torch.arange(options.seq) < options.seq - lengths).to(torch.int64)
    roles["mask"] = {"role": "mask", "low": 0, "high": 2}
    labels = inputs.pop("labels")
    return {**inputs, "mask": mask, "labels": labels}, roles


def _seq2seq_inputs(config, options, generator):
    inputs, roles = _lm_inputs(config, options, generator)
    roles["labels"]["labels"] = "same"  # the model shifts them into its decoder's inputs
    return inputs, roles


def _image_inputs(config, options, generator):
    height, width = _picture(config, options)
    if not hasattr(config, "num_channels"):
        raise ExportError(
            f"the {config.model_type!r} config has no num_channels, so its input is unknown; wrap "
            "the model in a module that returns its loss and call export_train_step"
        )
    shape = (options.batch, config.num_channels, height, width)
    pixels = torch.randn(shape, generator=generator)
    classes = _integers(config.num_labels, (options.batch,), generator)
    roles = {
        "pixel_values": {"role": "float", "low": -1.0, "high": 1.0},
        "labels": {"role": "class", "low": 0, "high": config.num_labels},
    }
    return {"pixel_values": pixels, "labels": classes}, roles


def _picture(config, options):
    """(height, width) of a config's pictures, or --image-size where a net takes any and its config names none."""
    size = getattr(config, "image_size", None)
    if hasattr(config, "vision_config"):
        raise ExportError(f"the {config.model_type!r} config is of a model of pictures and of text; give the config of one of pictures alone")
    if size is None and options.image_size is None:
        raise ExportError(f"the {config.model_type!r} config has no image_size, since the net takes any; give --image-size N", USAGE)
    if size is not None and options.image_size is not None:
        raise ExportError(f"the {config.model_type!r} config has image_size {size}; change it there and leave --image-size out", USAGE)
    size = size or options.image_size
    return size if isinstance(size, (list, tuple)) else (size, size)


def reads_tokens(task):
    return task is not _IMAGE


def require_fitting(task, options):
    """Refuses options that the task would ignore."""
    if options.image_size is not None and task is not _IMAGE:
        raise ExportError("--image-size is for models of pictures; leave it out", USAGE)
    if options.labels is not None and task not in (_CAUSAL, _MASKED):
        raise ExportError("--labels is for causal and masked language models; leave it out", USAGE)


_CAUSAL = Task("AutoModelForCausalLM", losses.CausalLmLoss, _lm_inputs)
_MASKED = Task("AutoModelForMaskedLM", losses.MaskedLmLoss, _masked_lm_inputs)
_SEQ2SEQ = Task("AutoModelForSeq2SeqLM", losses.Seq2SeqLoss, _seq2seq_inputs)
_IMAGE = Task("AutoModelForImageClassification", losses.ImageClassificationLoss, _image_inputs)


def find_task(config):
    """(task, notes): the task of a config is that of the head in its `architectures`; if they name none, that of the first that exists.

    A head of another task is refused, since a config of it would be exported as another model. notes: sentences for people.
    """
    from transformers.models.auto import modeling_auto as auto

    tables = (
        (auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES, _SEQ2SEQ),
        (auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES, _MASKED),
        (auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, _CAUSAL),
        (auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES, _IMAGE),
    )
    kind = config.model_type
    offered = {}
    for table, task in tables:
        for name in _names(table.get(kind)):
            offered.setdefault(name, task)
    if not offered:
        raise ExportError(
            f"model type {kind!r} has no causal LM, masked LM, seq2seq or image classification "
            "head; wrap it in a module that returns its loss and call export_train_step"
        )
    first = next(iter(offered))
    architectures = list(getattr(config, "architectures", None) or ())
    named = [name for name in offered if name in architectures]
    if named or not architectures:
        name = (named or [first])[0]
        return offered[name], _own_code(config, name)
    bare = _names(auto.MODEL_MAPPING_NAMES.get(kind))
    other = [name for name in architectures if name not in bare]
    if other:
        raise ExportError(
            f"the config's architectures name {other[0]}, and a config of type {kind!r} is exported as {' or '.join(offered)}: for {other[0]} wrap the model in a "
            f"module that returns its loss and call export_train_step; for {first} write that into architectures"
        )
    return offered[first], [f"the config's architectures name {architectures[0]}, which has no head; the step is that of {first}", *_own_code(config, first)]


def _own_code(config, name):
    """A note if the config names custom code (auto_map), as published ones do."""
    if not getattr(config, "auto_map", None):
        return []
    return [f"the config's auto_map names code of its own, which is not run; the step is that of transformers' {name}"]


def _names(entry):
    """The classes of an entry of transformers' tables."""
    return () if entry is None else (entry,) if isinstance(entry, str) else tuple(entry)
