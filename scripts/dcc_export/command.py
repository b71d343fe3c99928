"""The command line of export.py."""

import argparse
import contextlib
import logging
import os
import sys
import warnings

from . import errors
from .errors import ExportError, explained
from .inputs import LABELS

DTYPES = ("float32", "bfloat16", "autocast-bfloat16")


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        raise ExportError(f"{message}; see export.py --help", errors.USAGE)


def _parser():
    from .presets import NAMES

    parser = _Parser(
        prog="export.py",
        description="Exports a training step (forward, loss, backward) as a .pt2 archive.",
        epilog="Exit codes: 0 written and checked, 1 check failed, 64 usage, 65 the model or "
        "config cannot be exported, 66 input file missing, 70 the exporter failed where it did not foresee it, "
        "73 output cannot be written.",
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--preset", metavar="NAME", help=", ".join(NAMES))
    source.add_argument("--hf-config", metavar="FILE_OR_DIR", help="a transformers config.json")
    parser.add_argument("-o", dest="output", metavar="MODEL.pt2", required=True)
    parser.add_argument("--batch", type=_positive, metavar="B", help="rows per micro-batch; default 2, or the preset's own (llama-3-8b: 1)")
    parser.add_argument("--seq", type=_positive, metavar="S", help="tokens per row; default 32, or the preset's own (llama-3-8b: 2048)")
    parser.add_argument("--image-size", type=_positive, metavar="N", help="pixels of a picture's side; default the config's")
    parser.add_argument("--labels", choices=LABELS, help="which tokens the labels are; needed where the export cannot find out")
    parser.add_argument("--dynamic", metavar="DIMS", default="", help="batch, seq or batch,seq: sizes given to dcc compile --dim")
    parser.add_argument("--dtype", choices=DTYPES, help="default float32; bfloat16 if headless")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument("--headless", action="store_true", help="graph and shapes, no weights")
    parser.add_argument("--attention", choices=("cpu", "cuda-flash"), default="cpu")
    parser.add_argument("--dropout", type=_probability, metavar="P", help="rate of every dropout of the model; default 0, whatever the config says")
    parser.add_argument("--eval", action="store_true", help="also write the forward in eval mode, for dcrun --eval-every")
    parser.add_argument("--no-check", action="store_true", help="do not compare with eager")
    return parser


def _positive(text):
    with contextlib.suppress(ValueError):
        if int(text) >= 1:
            return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least 1")


def _probability(text):
    with contextlib.suppress(ValueError):
        if 0.0 <= float(text) < 1.0:
            return float(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no number from 0 to below 1")


def main(argv=None):
    """Runs the command; returns its exit code."""
    warnings.filterwarnings("ignore", message="The given buffer is not writable")
    logging.getLogger("torch.utils.flop_counter").setLevel(logging.ERROR)
    try:
        arguments = _parser().parse_args(argv)
        with explained("the export"):
            report = _run(arguments)
    except ExportError as error:
        return _failed(error)
    except OSError as error:
        return _failed(errors.of_system(error))
    except KeyboardInterrupt:
        print("export.py: interrupted, nothing was written", file=sys.stderr)
        return 130
    size = os.path.getsize(report.path) / 1e6
    print(
        f"export.py: {report.path}: {report.nodes} nodes, {report.parameters} parameters, "
        f"inputs {', '.join(report.inputs)}, {size:.1f} MB; "
        f"{report.labels + '; ' if report.labels else ''}{report.check}",
        file=sys.stderr,
    )
    for note in report.notes:
        print(f"export.py: note: {note}", file=sys.stderr)
    if report.without_rule:
        print(f"export.py: {_without_rule(report.without_rule)}", file=sys.stderr)
    return errors.OK


def _failed(error):
    print(f"export.py: {error}", file=sys.stderr)
    if getattr(error, "holds_writer", False):
        sys.stderr.flush()
        os._exit(error.exit_code)  # no destructor runs
    return error.exit_code


def _without_rule(names):
    shown = ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
    return f"no rule to draw {len(names)} of the tensors ({shown}): dcrun --weights init:SEED will refuse"


def _run(arguments):
    from . import hf, presets
    from .attempts import export_workload
    from .training_step import Options

    if not arguments.output.endswith(".pt2"):
        raise ExportError(f"-o {arguments.output}: the name must end in .pt2", errors.USAGE)
    default = presets.default_shape(arguments.preset)
    if arguments.seq and default[1] is None:
        raise ExportError(f"preset {arguments.preset} reads no tokens; leave --seq out", errors.USAGE)
    if arguments.seq and arguments.hf_config:
        hf.require_tokens(arguments.hf_config)
    options = Options(
        batch=arguments.batch or default[0],
        seq=arguments.seq or default[1],
        dtype=arguments.dtype or ("bfloat16" if arguments.headless else "float32"),
        seed=arguments.seed,
        image_size=arguments.image_size,
        labels=arguments.labels,
        attention=arguments.attention,
        dropout=arguments.dropout or 0.0,
        headless=arguments.headless,
        dynamic=arguments.dynamic,
        evaluates=arguments.eval,
    )
    report = export_workload(options, arguments.output, arguments.preset, arguments.hf_config, not arguments.no_check)
    if arguments.hf_config and arguments.dropout is None:
        report.notes = report.notes + hf.dropout_notes(hf.read_config(arguments.hf_config))
    return report
