"""`dcc explain`: what it says of fused kernels and merged collectives, worked out again from `dcc inspect --as=json`.

build/venv/bin/python tests/e2e/explain_test.py
"""

import json
import math
import os
import re
import subprocess
import unittest

import running

DCC = os.path.join(running.BIN, "dcc")
BYTES = {"f64": 8, "f32": 4, "bf16": 2, "f16": 2, "i64": 8, "i32": 4, "bool": 1, "u8": 1}


def explain(*arguments):
    said = json.loads(running.run([DCC, "explain", *arguments, "--json"]).stdout)
    assert said["schema"] == "dcc.explain/1"
    return said


def saved_bytes(plan, instruction):
    """Of a fused kernel: what its operations alone would write and read more."""
    body = next(arg["value"] if isinstance(arg["value"], str) else arg["text"] for arg in instruction["args"] if arg["name"] == "body")
    operands = [arg["value"] for arg in instruction["args"] if arg["name"] != "body"]
    operations, results = body.split("->")
    stored = results.split(",")
    elements = math.prod(plan["tensors"][instruction["outputs"][0]]["sizes"])
    apart = together = 0
    for value, dtype, arguments in re.findall(r"(t\d+):(\w+)=[\w.]+\((.*?)\);", operations):
        apart += elements * BYTES[dtype]
        together += elements * BYTES[dtype] if value in stored else 0
        for name in re.findall(r"=([at]\d+)(?=,|$)", arguments):
            apart += size_of(plan, operations, operands, elements, name)
    for tensor in operands:
        together += tensor_bytes(plan, tensor)
    return apart - together


def tensor_bytes(plan, tensor):
    entry = plan["tensors"][tensor]
    return math.prod(entry["sizes"]) * BYTES[entry["dtype"]]


def size_of(plan, operations, operands, elements, name):
    if name[0] == "a":
        return tensor_bytes(plan, operands[int(name[1:])])
    return elements * BYTES[re.search(rf"(?:^|;){name}:(\w+)=", operations)[1]]


class Explain(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.path = running.compile_plan(running.archive("tiny-llama"), 2, "disco", 2, "--providers", "native")
        cls.plan = running.inspect(cls.path)
        cls.said = explain(cls.path)

    def test_every_fused_kernel_and_merged_collective_is_there(self):
        fused, merged = set(), set()
        for p, program in enumerate(self.plan["programs"]):
            for i, one in enumerate(program["instructions"]):
                if one.get("provider") == "fused":
                    fused.add((p, i))
                if len(one.get("buffers", [])) > 1:
                    merged.add((p, i))
        self.assertTrue(fused and merged)
        self.assertEqual(fused, {(one["program"], one["index"]) for one in self.said["fusions"]})
        self.assertEqual(merged, {(one["program"], one["index"]) for one in self.said["merges"]})

    def test_bytes_and_kernels_saved(self):
        for one in self.said["fusions"]:
            instruction = self.plan["programs"][one["program"]]["instructions"][one["index"]]
            self.assertEqual(one["bytes_saved"], saved_bytes(self.plan, instruction), one)
            self.assertEqual(one["launches_saved"], len(one["operations"]) - 1)
            self.assertGreater(one["launches_saved"], 0)
            self.assertEqual(sum(operation["stored"] for operation in one["operations"]), len(instruction["outputs"]))

    def test_who_waits_for_whom(self):
        waits = []
        for one in self.said["merges"]:
            program = self.plan["programs"][one["program"]]
            instructions = program["instructions"]
            self.assertEqual([m["tensor"] for m in one["members"]], [b["input"] for b in instructions[one["index"]]["buffers"]])
            last = max(member["made_ns"] for member in one["members"])
            self.assertLessEqual(last, one["begins_ns"])
            for member in one["members"]:
                self.assertIn(member["tensor"], instructions[member["made_at"]]["writes"])
                self.assertEqual(member["waits_ns"], last - member["made_ns"])
                waits.append(member["waits_ns"])
            self.assertEqual(one["members"][one["last"]]["waits_ns"], 0)
        self.assertGreater(max(waits), 0)

    def test_only_what_is_asked_for(self):
        last = len(self.plan["programs"]) - 1
        one = next(f for f in self.said["fusions"] if f["program"] == last)
        self.assertEqual(explain(self.path, str(one["index"]))["fusions"], [one])
        tensor = one["results"][0]
        self.assertIn(one, explain(self.path, f"%{tensor}")["fusions"])
        self.assertLess(len(explain(self.path, f"%{tensor}")["fusions"]), len(self.said["fusions"]))
        module = "model.layers.0"
        part = explain(self.path, module)
        self.assertTrue(part["fusions"])
        for fusion in part["fusions"]:
            self.assertTrue(fusion["module"].startswith(module), fusion)
        text = running.run([DCC, "explain", self.path, str(one["index"])]).stdout
        self.assertIn(f"[{one['index']}]: {len(one['operations'])} operators are one kernel", text)
        for operation in one["operations"]:
            self.assertIn("\n  " + operation["text"], text)

    def test_what_is_not_there(self):
        for what, hint in (
            ("model.layers.77", "did you mean 'model.layers.0' or 'model.layers.1'"),
            ("model.layer.0", "did you mean 'model.layers.0'?"),
            ("%999999", "inspect --as=text"),
            ("999999", "inspect --as=text"),
            ("%", "no tensor, parameter or module"),
            ("a\x1b[31mb", "'a?[31mb'"),
        ):
            result = subprocess.run([DCC, "explain", self.path, what], capture_output=True, text=True, check=False)
            self.assertEqual((result.returncode, result.stdout), (64, ""), result.stderr)
            self.assertIn("DC2817", result.stderr)
            self.assertIn(hint, result.stderr)

    def test_a_parameter_is_where_its_gradient_travels(self):
        travelling = [
            (parameter["fqn"], i)
            for parameter in self.plan["parameters"]
            for i, one in enumerate(self.plan["programs"][-1]["instructions"])
            if len(one.get("buffers", [])) > 1 and parameter["gradient"] in one["writes"]
        ]
        self.assertTrue(travelling)
        for name, index in travelling:
            self.assertEqual([one["index"] for one in explain(self.path, name)["merges"]], [index])

    def test_what_is_neither_fused_nor_merged(self):
        index, alone = next(
            (i, one) for i, one in enumerate(self.plan["programs"][-1]["instructions"]) if one.get("provider") == "native" and one["op"].startswith("aten.")
        )
        said = running.run([DCC, "explain", self.path, str(index)]).stdout
        self.assertEqual(said, f"[{index}] {alone['op']} in {alone['module']}: no fused kernels and no collectives of several values\n")
        plain = running.compile_plan(running.archive("mlp"), 1, "no-fusion")
        self.assertEqual((explain(plain)["fusions"], explain(plain)["merges"]), ([], []))
        self.assertEqual(running.run([DCC, "explain", plain]).stdout, "the plan: no fused kernels and no collectives of several values\n")


if __name__ == "__main__":
    unittest.main()
