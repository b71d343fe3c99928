"""Exports training steps of PyTorch modules for dcc. `export_train_step` is the entry point."""

from .api import Report, export_train_step
from .errors import ExportError

__all__ = ["ExportError", "Report", "export_train_step"]
