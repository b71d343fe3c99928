"""The whole check of a written archive: at which sizes, and what is compared with what. `export`: as api.py has it."""

from .check import CheckResult, check_archive
from .errors import ExportError, first_line
from .evaluation import check_evaluation
from .stock import check_stock


def check_export(export, path, description):
    """A CheckResult: at the example's sizes and, where dims are dynamic, first at others."""
    if export.dims:
        others = export.dims.other_examples()
        try:
            result = _check(export, others, path, description)
        except RuntimeError as error:
            shapes = [list(tensor.shape) for tensor in others]
            raise ExportError(f"the archive fails with inputs of shapes {shapes}: {first_line(error)}; leave a dim out of dynamic_shapes") from error
        if not result.passed:
            return result
    return _check(export, export.examples, path, description)


def _check(export, examples, path, description):
    """The file against the module itself, or against the stock model of its config; its evaluation against the module in eval mode."""
    against = (path, export.step, examples, description["inputs"], export.user_name, export.seed)
    result = _check_training(against, export.names, export.stock)
    if not export.evaluates or not result.passed:
        return result
    evaluation = check_evaluation(*against)
    return CheckResult(evaluation.passed, f"{result.line}; {evaluation.line}" if evaluation.passed else evaluation.line)


def _check_training(against, names, stock):
    if stock is None:
        return check_archive(*against)
    if stock.altered:  # our module is compared with the stock model in the archive's place
        result = check_archive(*against)
        if not result.passed:
            return result
    return check_stock(*against, stock, names)
