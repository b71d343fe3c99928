"""Exports a preset or config, with the attention that can express its model."""

from .api import export_train_step
from .attention import DroppedKeyword
from .errors import BAD_INPUT, CHECK_FAILED, ExportError
from .workload import autocast_dtype, make


def export_workload(options, output, preset, hf_config, check):
    """Writes the archive and returns the Report.

    A transformers model keeps the attention that transformers gives it. If that cannot be traced,
    or the file differs from the stock model, the model's own eager attention is tried.
    """
    workload = make(options, preset, hf_config)
    try:
        return _export(workload, options, output, check)
    except ExportError as error:
        if not _may_be_eager(workload, options, error):
            raise
        first = error
    workload = make(options, preset, hf_config, attention="eager")
    if isinstance(first, DroppedKeyword):
        workload.stock.attention = "eager"  # the stock model's fused attention ignores it too
    try:
        return _export(workload, options, output, check)
    except ExportError as error:
        raise error if isinstance(first, DroppedKeyword) else first


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
        root=workload.root,
        autocast=autocast_dtype(options),
        attention=options.attention,
        headless=options.headless,
        check=check,
        seed=options.seed,
        stock=workload.stock,
    )
