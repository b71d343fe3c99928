"""The named models: small ones to test with, and real shapes to compile without weights."""

import os

import torch

from . import hf, losses, zoo
from .errors import USAGE, ExportError
from .initializers import InitializerRecorder
from .training_step import Workload

CONFIG_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "configs")

_LLAMA = {
    "model_type": "llama",
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 172,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
}
_GPT2 = {
    "model_type": "gpt2",
    "vocab_size": 256,
    "n_positions": 64,
    "n_embd": 64,
    "n_layer": 2,
    "n_head": 4,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
_BERT = {
    "model_type": "bert",
    "architectures": ["BertForMaskedLM"],
    "vocab_size": 256,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "max_position_embeddings": 64,
}
_MIXTRAL = {
    **_LLAMA,
    "model_type": "mixtral",
    "intermediate_size": 96,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "sliding_window": None,
}
_SMALL_LLAMA = {
    **_LLAMA,
    "vocab_size": 2048,
    "hidden_size": 320,
    "intermediate_size": 864,
    "num_hidden_layers": 8,
    "num_attention_heads": 10,
    "num_key_value_heads": 5,
}

_TRANSFORMERS = {
    "tiny-llama": _LLAMA,
    "tiny-llama-tied": {**_LLAMA, "tie_word_embeddings": True},
    "tiny-gpt2": _GPT2,
    "tiny-bert": _BERT,
    "tiny-mixtral": _MIXTRAL,
    "small-llama": _SMALL_LLAMA,
}
_SHAPES = {"small-llama": (2, 256), "resnet18": (8, None), "mlp": (16, None), "bert-base": (16, 128), **zoo.SHAPES}
_CONFIGS = ("llama-3-8b", "llama-3-70b", "mixtral-8x7b", "mixtral-8x7b-experts", "bert-base")
REAL = (*_CONFIGS, *zoo.FULL)
NAMES = ("mlp", *_TRANSFORMERS, "resnet18", *(name for name in zoo.NAMES if name not in zoo.FULL), *REAL)


def default_shape(name):
    """(batch, seq) when the command line does not say."""
    return _SHAPES.get(name, (1, 2048) if name in REAL else (2, 32))


def build(name, options, attention=None):
    """The Workload of a preset. attention: as in hf.build."""
    if name in _TRANSFORMERS:
        return hf.build(_TRANSFORMERS[name], options, attention)
    if name in _CONFIGS:
        values = hf.read_config(os.path.join(CONFIG_FOLDER, name + ".json"))
        return hf.build(values, options, attention)
    makers = {"mlp": (_mlp, _mlp_inputs), "resnet18": (_resnet18, _resnet18_inputs)}
    if name not in makers and name not in zoo.NAMES:
        raise ExportError(f"unknown preset {name!r}; the presets are {', '.join(NAMES)}", USAGE)
    if options.dropout:
        raise ExportError(f"preset {name} has no dropout; leave --dropout out", USAGE)
    torch.manual_seed(options.seed)
    if name in zoo.NAMES:
        return _zoo(name, options)
    make_model, make_inputs = makers[name]
    with InitializerRecorder() as recorder:
        model = make_model()
    generator = torch.Generator().manual_seed(options.seed)
    inputs, roles = make_inputs(options, generator)
    module = losses.ClassifierLoss(model).train()
    return Workload(module, inputs, roles, initializers=recorder.rules(model))


def _zoo(name, options):
    with InitializerRecorder() as recorder:
        model, loss = zoo.model_and_loss(name)
    inputs, roles = zoo.inputs(name, options, torch.Generator().manual_seed(options.seed))
    module = (loss or losses.ClassifierLoss)(model).train()
    return Workload(module, inputs, roles, initializers=recorder.rules(model))


def _mlp():
    """Three linear layers: 32 features, two hidden layers of 64, 10 classes."""
    return torch.nn.Sequential(
        torch.nn.Linear(32, 64),
        torch.nn.ReLU(),
        torch.nn.Linear(64, 64),
        torch.nn.ReLU(),
        torch.nn.Linear(64, 10),
    )


def _mlp_inputs(options, generator):
    return _classifier_inputs((options.batch, 32), generator)


def _resnet18():
    from torchvision.models import resnet18

    return resnet18(weights=None, num_classes=10)


def _resnet18_inputs(options, generator):
    return _classifier_inputs((options.batch, 3, 32, 32), generator)


def _classifier_inputs(shape, generator):
    inputs = {
        "x": torch.rand(shape, generator=generator) * 2 - 1,
        "labels": torch.randint(0, 10, shape[:1], generator=generator),
    }
    roles = {
        "x": {"role": "float", "low": -1.0, "high": 1.0},
        "labels": {"role": "class", "low": 0, "high": 10},
    }
    return inputs, roles
