"""Runs every overload of src/ir/aten_ops.def in PyTorch and writes what the aten provider must then give.

    make_aten_samples.py SAMPLES.txt

The file has the form of make_aten_cases.py's. A result's type is the one that a graph would have: the strides that shape propagation on
fake tensors gives, as an export does, and the element type that the CPU kernel gives; its values are those of the kernel. Further lines:

    types OP INDEX OPERANDS... FAKE REAL   the element type of a result where propagation and kernel disagree; "-" is no operand
    gpu OP                                 PyTorch has no CPU kernel of it
    fault TEXT                             the table, or a sample, is wrong
"""

import logging
import pathlib
import sys
import warnings

import torch
import torch.utils._pytree as pytree
from torch._subclasses.fake_tensor import FakeTensorMode

import aten_layer_samples
import aten_samples
import make_aten_cases
from aten_operands import LAYOUTS, LAYOUTS_OF_ROWS, SAMPLES, Maker

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts"))
from check_aten_ops import read_table  # noqa: E402

FULL, SHORT = (torch.float32, torch.bfloat16), (torch.float16, torch.float64, torch.int64, torch.bool)
OUT = make_aten_cases.OUT


def overload_of(name):
    packet, _, variant = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), variant)


def fault(text):
    OUT.append(f"fault {text}")


def results_of(op, args, kwargs):
    results = op(*args, **kwargs)
    return list(results) if isinstance(results, (tuple, list)) else [results]


def propagated(op, args, kwargs):
    with FakeTensorMode() as mode:
        fake = pytree.tree_map_only(torch.Tensor, mode.from_tensor, (args, kwargs))
        return results_of(op, *fake)


def tensors_in(value):
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def check_storage(name, alias, args, kwargs, results):
    """The alias rule of the table: every result is a view of the first tensor, or none shares storage with anything."""
    taken = [t.untyped_storage().data_ptr() for t in tensors_in((args, kwargs))]
    for index, result in enumerate(results):
        if not isinstance(result, torch.Tensor) or result.numel() == 0:
            continue
        storage = result.untyped_storage().data_ptr()
        if alias == "View" and storage != taken[0]:
            fault(f"{name}: result {index} is no view of its first operand")
        if alias == "Fresh" and storage in taken:
            fault(f"{name}: result {index} shares storage, but the table says Fresh")
        taken += [storage] if alias == "Fresh" else []


def check_view(name, results, fakes):
    for result, fake in zip(results, fakes, strict=True):
        places = [(t.shape, t.stride(), t.storage_offset(), t.dtype) for t in (result, fake)]
        if places[0] != places[1]:
            fault(f"{name}: shape propagation says {places[1]}, the view is {places[0]}")


def operand_types(op, args, kwargs):
    """Element types of the schema's tensor arguments in order."""
    given = dict(zip([a.name for a in op._schema.arguments], args)) | kwargs
    tensors = [a.name for a in op._schema.arguments if str(a.type) in ("Tensor", "Optional[Tensor]")]
    return [f"{n}={make_aten_cases.NAMES[given[n].dtype]}" for n in tensors if given.get(n) is not None]


def as_planned(result, fake):
    return torch.empty_strided(fake.shape, fake.stride(), dtype=result.dtype).copy_(result)


def write_sample(label, name, row, op, args, kwargs):
    """Writes one sample; false if PyTorch does not compute it."""
    try:
        results = results_of(op, args, kwargs)
        fakes = propagated(op, args, kwargs)
    except (RuntimeError, NotImplementedError, TypeError, IndexError):
        return False
    if row[0] != "Identity":
        check_storage(name, row[1], args, kwargs, results)
    if row[1] == "View":
        check_view(name, results, fakes)
    if row[1] == "View" or row[0] == "Identity":
        return True
    planned = []
    for index, (result, fake) in enumerate(zip(results, fakes, strict=True)):
        if not isinstance(result, torch.Tensor):
            planned.append(None)
            continue
        if result.shape != fake.shape:
            fault(f"{name}: shape propagation says {tuple(fake.shape)}, the kernel gives {tuple(result.shape)}")
        elif result.dtype != fake.dtype:
            types = " ".join(operand_types(op, args, kwargs))
            names = [make_aten_cases.NAMES[t.dtype] for t in (fake, result)]
            OUT.append(f"types aten.{name} {index} {types} {names[0]} {names[1]}")
        planned.append(as_planned(result, fake))
    make_aten_cases.write_case(label, name, op, args, kwargs, planned)
    return True


def run(name, row, op):
    ran = 0
    layouts = LAYOUTS_OF_ROWS if row[0] in ("Norm", "Softmax") else LAYOUTS
    for dtype in FULL + SHORT:
        for layout in layouts if dtype in FULL else LAYOUTS[:1]:
            for seed, make in enumerate(SAMPLES[name]):
                if row[0] in ("Norm", "Softmax", "Convolution", "Attention") and not dtype.is_floating_point:
                    continue
                if "_loss" in name and not dtype.is_floating_point:
                    continue  # PyTorch divides by beta as an integer there
                try:
                    made = make(Maker(dtype, layout, seed))
                except (RuntimeError, NotImplementedError):
                    continue
                if made is not None:
                    label = f"{len(OUT)}_{make_aten_cases.NAMES[dtype]}_{layout}"
                    ran += write_sample(label, name, row, op, *made)
    if ran == 0:
        fault(f"{name}: no sample of it runs")


def has_cpu_kernel(name):
    full = "aten::" + name.removesuffix(".default")
    keys = ("CPU", "CompositeExplicitAutograd", "CompositeImplicitAutograd", "CompositeExplicitAutogradNonFunctional")
    return any(torch._C._dispatch_has_kernel_for_dispatch_key(full, key) for key in keys)


def main(path):
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)  # what PyTorch does not compute is left out
    torch.set_num_threads(1)
    aten_samples.add_all()
    aten_layer_samples.add_all()
    rows = read_table(ROOT / "src" / "ir" / "aten_ops.def")
    for name in SAMPLES:
        if name not in rows:
            fault(f"{name} has a sample, but is not in src/ir/aten_ops.def")
    for name, row in rows.items():
        if row[2] != "Plain":
            continue  # refused before anything runs
        if not has_cpu_kernel(name):
            OUT.append(f"gpu aten.{name}")
        elif name not in SAMPLES:
            fault(f"{name} is in src/ir/aten_ops.def, but has no sample: add one to tests/runtime/kernel/aten_samples.py")
        else:
            run(name, row, overload_of(name))
    with open(path, "w", encoding="ascii") as file:
        file.write("\n".join(OUT) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
