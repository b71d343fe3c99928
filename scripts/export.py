#!/usr/bin/env python3
"""Exports a training step as a .pt2 archive; `--help` lists the options.

As a module: `from export import export_train_step`.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
if __name__ == "__main__":
    os.environ.setdefault("PYTORCH_JIT", "0")  # read by torch: functions that transformers scripts can be traced

from dcc_export import ExportError, Report, export_train_step

__all__ = ["ExportError", "Report", "export_train_step"]

if __name__ == "__main__":
    import signal

    from dcc_export.command import main

    # An orderly end, so that the unfinished file is removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
