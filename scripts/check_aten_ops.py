"""Compares src/ir/aten_ops.def with torch's own operator schemas: existence, aliasing, mutation, randomness,
how many tensors are read and given.

    build/venv/bin/python scripts/check_aten_ops.py

Exit 0 if the table agrees, 1 if it does not (every difference is listed), 66 if torch is missing.
"""

import pathlib
import re
import sys

# Overloads whose schema says something else than our table, with the reason.
ALIAS_EXCEPTIONS = {
    "_unsafe_view.default": "a view of its operand in the kernel; the schema leaves the alias out for autograd only",
}
MUTATION_EXCEPTIONS = {
    "native_batch_norm.default": "updates the running statistics, although the schema does not say so",
}
# Operators with another tag that say nothing about random numbers in our use.
RANDOM_EXCEPTIONS = {
    "_scaled_dot_product_flash_attention.default": "random only with dropout; normalization refuses a dropout argument other than 0",
    "_scaled_dot_product_efficient_attention.default": "as above",
    "_scaled_dot_product_cudnn_attention.default": "as above",
    "_scaled_dot_product_flash_attention_for_cpu.default": "as above",
    "_scaled_dot_product_efficient_attention_backward.default": "reads the forward's random state only",
    "_scaled_dot_product_cudnn_attention_backward.default": "reads the forward's random state only",
}
DATA_EXCEPTIONS = {
    "index.Tensor": "data dependent only with a bool index, which the verifier refuses",
    "bincount.default": "its length is max(input) + 1 unless minlength is larger",
    "equal.default": "returns a number read from data",
    "is_nonzero.default": "returns a number read from data",
    "item.default": "returns a number read from data",
    "_local_scalar_dense.default": "returns a number read from data",
}

# Tensors that the schema asks for and that are undefined, None in an archive, where there is nothing to say.
MAY_BE_UNDEFINED = {"cum_seq_q", "cum_seq_k", "attn_bias"}
# Overloads of other classes than Pointwise that take a number for a tensor.
NUMBER_FOR_TENSOR = {"copy.default"}

ROW = re.compile(r'^DC_ATEN\("([^"]+)",\s*(\w+),\s*(\w+),\s*(\w+), (\d+), (\d+|Many), \w+\)$')


def read_table(path):
    rows = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.startswith("DC_ATEN"):
            continue
        match = ROW.match(line)
        if not match:
            sys.exit(f"{path}:{number}: not a table row: {line}")
        rows[match[1]] = match.groups()[1:]
    return rows


def is_tensor(kind):
    return str(kind) in ("Tensor", "List[Tensor]", "Optional[Tensor]")


def differences(name, row, torch):
    cls, alias, trait, operands, results = row
    packet, _, overload = name.partition(".")
    op = getattr(getattr(torch.ops.aten, packet, None), overload, None)
    if op is None:
        yield "torch has no such overload"
        return
    schema = op._schema
    tensors = [r for r in schema.returns if is_tensor(r.type)]
    writes = any(a.alias_info is not None and a.alias_info.is_write for a in schema.arguments)
    aliases = [r for r in tensors if r.alias_info is not None]
    if (trait == "Mutates") != writes and name not in MUTATION_EXCEPTIONS:
        yield f"trait {trait}, but the schema {'writes' if writes else 'does not write'} an argument"
    if trait != "Mutates" and name not in ALIAS_EXCEPTIONS:
        expected = "None" if not tensors else "View" if len(aliases) == len(tensors) else "Fresh"
        if aliases and len(aliases) != len(tensors):
            yield "only some results alias an operand: not expressible"
        if alias != expected:
            yield f"alias {alias}, the schema says {expected}"
    if expected_first_operand(alias, trait) and not first_tensor_aliased(schema) and name not in ALIAS_EXCEPTIONS:
        yield "the aliased operand is not the first tensor"
    random = torch.Tag.nondeterministic_seeded in op.tags
    if trait != "Mutates" and random != (trait == "Random") and name not in RANDOM_EXCEPTIONS:
        yield f"trait {trait}, torch's tag nondeterministic_seeded is {random}"
    if operands != str(least_operands(name, schema, cls)):
        yield f"{operands} operands, the schema asks for {least_operands(name, schema, cls)}"
    if results != str(result_count(schema)):
        yield f"{results} results, the schema gives {result_count(schema)}"
    dynamic = torch.Tag.dynamic_output_shape in op.tags or torch.Tag.data_dependent_output in op.tags
    if dynamic != (trait == "DataDependent") and name not in DATA_EXCEPTIONS:
        yield f"trait {trait}, torch's tags for data dependence say {dynamic}"


def least_operands(name, schema, cls):
    """The least number of tensor operands of a node. An exported element-wise op may have a number where the schema has a tensor, but one operand is a tensor."""
    required = [a for a in schema.arguments if not a.has_default_value() and a.name not in MAY_BE_UNDEFINED]
    count = sum(str(a.type) in ("List[Tensor]", "Tensor") for a in required)
    return min(count, 1) if cls == "Pointwise" or name in NUMBER_FOR_TENSOR else count


def result_count(schema):
    return "Many" if any(str(r.type) == "List[Tensor]" for r in schema.returns) else len(schema.returns)


def expected_first_operand(alias, trait):
    return alias == "View" and trait != "Mutates"


def first_tensor_aliased(schema):
    for argument in schema.arguments:
        if is_tensor(argument.type):
            return argument.alias_info is not None
    return False


def main():
    try:
        import torch
    except ImportError:
        print("check_aten_ops: needs torch; run it with the Python of build/venv", file=sys.stderr)
        return 66
    path = pathlib.Path(__file__).resolve().parent.parent / "src" / "ir" / "aten_ops.def"
    rows = read_table(path)
    wrong = 0
    for name, row in rows.items():
        for text in differences(name, row, torch):
            print(f"aten.{name}: {text}")
            wrong += 1
    print(f"{len(rows)} overloads, {wrong} differences (torch {torch.__version__})")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
