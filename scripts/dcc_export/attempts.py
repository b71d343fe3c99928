"""Exports a preset or config, with the attention that can express its model."""

import os
import tempfile

from .api import export_train_step
from .attention import DroppedKeyword
from .dynamic import named_dims
from .errors import BAD_INPUT, CHECK_FAILED, ExportError
from .twin import twin_options, twins
from .workload import autocast_dtype, make


def export_workload(options, output, preset, hf_config, check):
    """Writes the archive and returns the Report.

    A transformers model keeps the attention that transformers gives it. If that cannot be traced,
    or the file differs from the stock model, the model's own eager attention is tried. An archive
    that cannot be run here is written if a twin, a small model of the same config, passes.
    """

    def build(attention):
        return make(options, preset, hf_config, attention)

    workload = build(None)
    if not check or workload.stock is None or not (options.headless or options.attention != "cpu"):
        return _attempt(build, workload, options, output, check)[0]
    report, attention = _export_twin(workload.stock.values, options)
    if attention is not None and options.attention == "cpu":
        workload = build(attention)
    line = report.check
    report = _export(workload, options, output, check)
    reason = "no weights" if options.headless else "needs a GPU"
    report.check = f"{reason}, so a small twin was compared: {line}"
    return report


def _attempt(build, workload, options, output, check):
    """Returns (Report, transformers' name of the attention or None for its default)."""
    try:
        return _export(workload, options, output, check), None
    except ExportError as error:
        if not _may_be_eager(workload, options, error):
            raise
        first = error
    workload = build("eager")
    if isinstance(first, DroppedKeyword):
        workload.stock.attention = "eager"  # the stock model's fused attention ignores it too
    try:
        return _export(workload, options, output, check), "eager"
    except ExportError as error:
        raise (error if isinstance(first, DroppedKeyword) else first) from None


def _export_twin(values, options):
    """Exports and checks a small model of the same config, and throws its file away."""
    small = twin_options(values, options)
    build = twins(values, small, options.seq)
    with tempfile.TemporaryDirectory() as folder:
        try:
            return _attempt(build, build(None), small, os.path.join(folder, "twin.pt2"), True)
        except ExportError as error:
            raise ExportError(f"a small twin of this config: {error}", error.exit_code) from error


def _may_be_eager(workload, options, error):
    if workload.stock is None or options.attention != "cpu":
        return False
    attention = workload.module.model.config._attn_implementation
    return attention != "eager" and error.exit_code in (BAD_INPUT, CHECK_FAILED)


def _export(workload, options, output, check):
    return export_train_step(
        workload.module,
        workload.inputs,
        output,
        roles=workload.roles,
        initializers=workload.initializers,
        dynamic_shapes=named_dims(options, workload.inputs),
        root=workload.root,
        autocast=autocast_dtype(options),
        attention=options.attention,
        headless=options.headless,
        check=check,
        seed=options.seed,
        stock=workload.stock,
        notes=workload.notes,
        eval=options.evaluates,
    )
