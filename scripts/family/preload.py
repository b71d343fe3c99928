"""What every family's process needs, imported once before the forks."""

import glob
import importlib
import os

_MODULES = (
    "torch.export",
    "torch._functorch.aot_autograd",
    "torch._dynamo",
    "torch._inductor.fx_passes.joint_graph",
    "torch.utils.flop_counter",
    "safetensors.torch",
    "transformers.modeling_utils",
    "transformers.generation.utils",
    "transformers.models.auto.modeling_auto",
    "transformers.integrations.moe",
    "transformers.models.llama.modeling_llama",
    "dcc_export.command",
    "dcc_export.api",
    "dcc_export.presets",
    "dcc_export.hf",
)


def imports():
    import logging

    for name in _MODULES:
        importlib.import_module(name)
    import transformers

    transformers.logging.set_verbosity_error()
    logging.getLogger("torch.utils.flop_counter").setLevel(logging.ERROR)


def plugins(programs):
    """The files of dcrun's plug-ins."""
    return sorted(glob.glob(os.path.join(programs, "..", "lib", "*.so")) + glob.glob(os.path.join(programs, "*.so")))
