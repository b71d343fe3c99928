"""Lists the overloads of ATen that take tensors, each with whether its schema says that it writes one of them.

One line per overload: "aten.relu_.default 1".
"""

import sys

import torch


def main(path):
    with open(path, "w", encoding="ascii") as file:
        for full in sorted(torch._C._dispatch_get_all_op_names()):
            name, _, overload = full.partition(".")
            if not name.startswith("aten::"):
                continue
            schema = torch._C._get_schema(name, overload)
            if any("Tensor" in str(argument.type) for argument in schema.arguments):
                file.write(f"aten.{name[6:]}.{overload or 'default'} {int(schema.is_mutable)}\n")


if __name__ == "__main__":
    main(sys.argv[1])
