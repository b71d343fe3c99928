"""Makes a named or configured training step.

`make` builds the same module and inputs as the command, for programs that compare with it.
"""

from . import hf, presets
from .errors import USAGE, ExportError
from .training_step import Options, Workload, autocast_dtype, to_dtype

__all__ = ["Options", "Workload", "autocast_dtype", "make", "to_dtype"]


def make(options, preset=None, hf_config=None, attention=None):
    """Builds a preset, or a transformers config file or folder.

    attention: for a transformers model, its name for the attention; None: its default.
    """
    _require_consistent(options, preset)
    if preset:
        workload = presets.build(preset, options, attention)
    else:
        workload = hf.build(hf.read_config(hf_config), options, attention)
    return to_dtype(workload, options)


def _require_consistent(options, preset):
    if preset and (options.image_size or options.labels):
        raise ExportError("--image-size and --labels are for --hf-config; leave them out", USAGE)
    if options.attention == "cuda-flash" and options.dtype != "bfloat16":
        raise ExportError(
            f"--attention cuda-flash computes in 16 bits, not {options.dtype}; add --dtype bfloat16",
            USAGE,
        )
