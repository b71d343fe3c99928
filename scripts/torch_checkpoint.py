#!/usr/bin/env python3
"""Training state between PyTorch and dcrun; `--help` lists the options.

    torch_checkpoint.py to-dcrun MODEL.pt2 OPTIMIZER.pt -o FOLDER [--weights MODEL.pt]    # for dcrun --resume FOLDER
    torch_checkpoint.py to-torch CHECKPOINT MODEL.pt2 -o STATE.pt                         # for load_state_dict()

Exit codes: 0 done, 64 usage, 65 an input does not fit, 66 an input is missing or may not be read, 70 the conversion failed where it did
not foresee it, 73 the output cannot be written.
"""

import argparse
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import torch

from dcc_export import from_torch, to_torch
from dcc_export.archive import replacing, zip_written
from dcc_export.archived import read_archive
from dcc_export.errors import MISSING, USAGE, ExportError, explained, of_system


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        raise ExportError(f"{message}; see torch_checkpoint.py --help", USAGE)


def _parser():
    parser = _Parser(prog="torch_checkpoint.py", description="Training state between PyTorch and dcrun.")
    ways = parser.add_subparsers(dest="way", required=True, parser_class=_Parser)
    names = "JSON list of parameter names in the optimizer's order; default: the order of the optimizer that was exported, else the module's"
    to = ways.add_parser("to-dcrun", help="a checkpoint for dcrun --resume of what torch.save wrote")
    to.add_argument("archive", metavar="MODEL.pt2", help="of the same model, from scripts/export.py")
    to.add_argument("optimizer", metavar="OPTIMIZER.pt", help="torch.save(optimizer.state_dict(), FILE)")
    to.add_argument("-o", dest="output", metavar="FOLDER", required=True, help="gets step-NNNNNNNN; may be the --save folder of the run")
    to.add_argument("--key", metavar="NAME", help="the member of OPTIMIZER.pt that holds the state")
    to.add_argument("--weights", metavar="FILE", help="torch.save(model.state_dict()) or safetensors; default: the archive's")
    to.add_argument("--names", metavar="FILE", help=names)
    to.add_argument("--steps-taken", type=int, metavar="N", help="for SGD, which does not count its steps")
    to.add_argument("--samples", type=int, default=0, metavar="N", help="samples that these steps have read; dcrun goes on with the next")
    back = ways.add_parser("to-torch", help="a file for torch.load with model, optimizer, masters, step, samples")
    back.add_argument("checkpoint", metavar="CHECKPOINT", help="a checkpoint of dcrun, or a folder of them (its newest)")
    back.add_argument("archive", metavar="MODEL.pt2")
    back.add_argument("-o", dest="output", metavar="STATE.pt", required=True)
    back.add_argument("--names", metavar="FILE", help=names)
    return parser


def main(argv=None):
    try:
        arguments = _parser().parse_args(argv)
        with explained("the conversion", "it did not foresee it: report it, with what wrote the files"):
            notes = (_to_dcrun if arguments.way == "to-dcrun" else _to_torch)(arguments)
    except ExportError as error:
        return _failed(error)
    except OSError as error:
        return _failed(of_system(error))
    for note in notes:
        print(f"torch_checkpoint.py: {note}", file=sys.stderr)
    return 0


def _failed(error):
    print(f"torch_checkpoint.py: {error}", file=sys.stderr)
    return error.exit_code


def _to_dcrun(arguments):
    path, notes = from_torch.convert(
        read_archive(arguments.archive),
        arguments.optimizer,
        arguments.output,
        key=arguments.key,
        weights_file=arguments.weights,
        names=_names(arguments.names),
        steps_taken=arguments.steps_taken,
        samples=arguments.samples,
    )
    return [f"wrote {path}; dcrun --resume {path} goes on from it", *notes]


def _to_torch(arguments):
    checkpoint = to_torch.StoredCheckpoint(arguments.checkpoint)
    state = to_torch.convert(checkpoint, read_archive(arguments.archive), _names(arguments.names))
    with replacing(arguments.output) as partial, zip_written(arguments.output):
        torch.save(state, partial)
    notes = [f"wrote {arguments.output}: the state after step {state['step']} of {checkpoint.path}"]
    if checkpoint.unchecked:
        notes.append("its checksums were not compared: install xxhash for that")
    if state["masters"]:
        notes.append("load_state_dict() rounds moments to the parameters' type; the float32 masters are in 'masters'")
    return notes


def _names(path):
    if path is None:
        return None
    try:
        with open(path) as file:
            names = json.load(file)
    except OSError as error:
        raise ExportError(f"{path}: {error.strerror}", MISSING) from error
    except ValueError as error:
        raise ExportError(f"{path} is no JSON: {error}") from error
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ExportError(f"{path} holds no list of names")
    return names


if __name__ == "__main__":
    sys.exit(main())
