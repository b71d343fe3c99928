"""dcc inspect --as=timeline: the page holds the whole plan and the run next to it, and needs nothing else. Exposed waiting in traces and
metrics agrees.

    build/venv/bin/python tests/e2e/timeline_test.py
"""

import base64
import functools
import json
import os
import re
import shutil
import subprocess
import unittest

import running

DCC = os.path.join(running.BIN, "dcc")
BROWSER = next((path for path in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if path), None)
KINDS = ["kernel", "collective", "copy", "signal", "wait"]
STEPS = 5


def dcc(*arguments):
    return subprocess.run([DCC, *arguments], capture_output=True, text=True, timeout=120)


@functools.cache
def traced():
    """(plan, trace, metrics rows) of a short run on two ranks with two micro-batches per step."""
    model = running.archive("tiny-llama")
    plan, trace = running.compile_plan(model, 2, 3, 2), running.fresh(".json")
    run = running.train(plan, model, 2, STEPS, "--trace", trace)
    return plan, trace, run.steps


@functools.cache
def page():
    plan, trace, _ = traced()
    path = running.fresh(".html")
    running.run([DCC, "inspect", "--as=timeline", plan, trace, "-o", path])
    with open(path, encoding="utf-8") as file:
        return path, file.read()


def data(text):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S).group(1))


def column(text, signed=False):
    """The integers of a packed column."""
    values, value, shift = [], 0, 0
    for byte in base64.b64decode(text):
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            values.append(-(value + 1) // 2 if signed and value % 2 else value // 2 if signed else value)
            value = shift = 0
    return values


class Timeline(unittest.TestCase):
    def test_the_page_needs_nothing_else(self):
        path, text = page()
        self.assertTrue(text.startswith("<!doctype html>"))
        self.assertIn("default-src 'none'", text)
        for never in ("://", "src=", "url(", "@import", "{{"):
            self.assertNotIn(never, text.replace(json.dumps(data(text)["plan"]["notes"]), ""))
        self.assertEqual(text.count("<script"), 2)
        self.assertEqual(os.listdir(os.path.dirname(path)), [os.path.basename(path)])

    def test_every_instruction_is_there(self):
        plan, _, _ = traced()
        whole, shown = running.inspect(plan), data(page()[1])
        self.assertEqual([p["name"] for p in shown["programs"]], ["accumulate", "step"])
        step = 0
        for program, packed, run in zip(whole["programs"], shown["programs"], whole["step"], strict=True):
            instructions = program["instructions"]
            self.assertEqual(packed["count"], len(instructions))
            columns = {key: column(packed[key], key == "begin") for key in ("kind", "stream", "op", "module", "length", "awaits", "begin")}
            self.assertEqual([len(values) for values in columns.values()], [len(instructions)] * len(columns))
            self.assertEqual([KINDS[k] for k in columns["kind"]], [i["kind"] for i in instructions])
            self.assertEqual(columns["stream"], [i["stream"] for i in instructions])
            self.assertEqual([shown["strings"][m] for m in columns["module"]], [i["module"] for i in instructions])
            ops = [i.get("op") or i.get("collective") or i["kind"] for i in instructions]
            self.assertEqual([shown["strings"][o] for o in columns["op"]], ops)
            for index, (instruction, predicted) in enumerate(zip(instructions, program["duration_ns"], strict=True)):
                if instruction["kind"] != "wait":
                    self.assertEqual(columns["length"][index], predicted)
                elif instruction["stream"] == 0:
                    self.assertEqual(instructions[columns["awaits"][index] - 1]["kind"], "collective")
            step += packed["time_ns"] * run["repeat"]
        self.assertEqual(step, whole["prediction"]["step_ns"])
        self.assertEqual(shown["slices"]["count"], len(whole["slices"]))
        self.assertEqual(sum(column(shown["slices"]["bytes"])), sum(-(-s["bytes"] // 64) * 64 for s in whole["slices"]))

    def test_what_is_fused_is_named(self):
        plan, _, _ = traced()
        shown = data(page()[1])
        explained = json.loads(dcc("explain", plan, "--json").stdout)
        for number, packed in enumerate(shown["programs"]):
            bodies, saved = (column(packed[key]) for key in ("body", "saved"))
            expected = {f["index"]: f for f in explained["fusions"] if f["program"] == number}
            self.assertEqual({i for i, body in enumerate(bodies) if body}, set(expected))
            for index, fusion in expected.items():
                parts = shown["strings"][bodies[index]].split("->")[0].split(";")[:-1]
                operations = [part for part in parts if part.startswith("t")]  # the others are windows
                self.assertEqual((len(operations), saved[index]), (len(fusion["operations"]), fusion["bytes_saved"]))
        self.assertGreater(len(explained["fusions"]), 0)

    def test_the_real_step_is_that_of_the_trace(self):
        _, trace, _ = traced()
        real = data(page()[1])["real"]
        with open(trace) as file:
            events = [e for e in json.load(file)["traceEvents"] if e["ph"] == "X"]
        self.assertEqual((real["communicator"], real["whole_steps"], [r["rank"] for r in real["ranks"]]), ("local", STEPS, [0, 1]))
        for rank in real["ranks"]:
            self.assertEqual(len(rank["runs"]), 2)
            for number, run in enumerate(rank["runs"]):
                lengths = column(run["length"])
                theirs = {
                    e["args"]["index"]: round(1000 * e["dur"])
                    for e in events
                    if (e["pid"], e["args"]["step"], e["args"]["run"]) == (rank["rank"], real["step"], number)
                }
                self.assertEqual({i: length - 1 for i, length in enumerate(lengths) if length}, theirs)

    def test_exposed_waiting_is_the_same_in_trace_and_metrics(self):
        plan, trace, rows = traced()
        programs = {p["name"]: p["instructions"] for p in running.inspect(plan)["programs"]}
        with open(trace) as file:
            events = [e for e in json.load(file)["traceEvents"] if e["ph"] == "X"]
        for row in rows:
            mine = [e for e in events if e["pid"] == 0 and e["args"]["step"] == row["step"]]
            waits = [e for e in mine if e["tid"] == 0 and e["name"] == "wait"]
            self.assertAlmostEqual(sum(e["dur"] for e in waits) / 1e3, row["exposed_ms"], places=4)
            collectives = sum(e["dur"] for e in mine if e["name"] in ("all_gather", "reduce_scatter", "all_reduce"))
            self.assertAlmostEqual(collectives / 1e3, row["collective_ms"], places=4)
            self.assertGreater(row["exposed_ms"], 0)
            for event in waits:
                awaited = event["args"]["awaits"]
                self.assertEqual(programs[event["args"]["program"]][awaited["index"]]["collective"], awaited["name"])

    def test_without_a_trace_and_to_standard_output(self):
        plan = traced()[0]
        shown = dcc("inspect", plan, "--as=timeline")
        self.assertEqual((shown.returncode, shown.stderr), (0, ""))
        self.assertIsNone(data(shown.stdout)["real"])
        path = running.fresh(".txt")
        self.assertEqual(dcc("inspect", plan, "--as=text", "-o", path).stdout, "")
        with open(path) as file:
            self.assertEqual(file.read(), dcc("inspect", plan, "--as=text").stdout)

    def test_refusals(self):
        plan, trace, _ = traced()
        other = running.compile_plan(running.archive("tiny-llama"), 2, 0, 2)
        target = running.fresh(".html")
        with open(trace) as file:
            text = file.read()
        half = running.fresh(".json")
        with open(half, "w") as file:
            file.write(text[: len(text) // 2])
        cases = [
            (76, other, trace, ("is a trace of plan", "dcrun --trace")),
            (65, plan, half, (half,)),
            (65, plan, plan, (plan,)),
            (66, plan, "/nonexistent.json", ("/nonexistent.json",)),
        ]
        for code, a, b, words in cases:
            failed = dcc("inspect", a, b, "--as=timeline", "-o", target)
            self.assertEqual((failed.returncode, failed.stdout), (code, ""), failed.stderr)
            for word in words:
                self.assertIn(word, failed.stderr)
            self.assertFalse(os.path.exists(target))
        self.assertEqual(dcc("inspect", plan, trace, "--as=text").returncode, 64)
        self.assertEqual(dcc("inspect", plan, "--as=timeline", "-o", "/nonexistent/page.html").returncode, 73)

    @unittest.skipUnless(BROWSER, "no chromium here")
    def test_a_browser_shows_it(self):
        command = [
            BROWSER,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--virtual-time-budget=3000",
            "--window-size=1400,900",
            "--user-data-dir=" + os.path.dirname(running.fresh()),
            "--dump-dom",
            "file://" + page()[0],
        ]
        shown = subprocess.run(command, capture_output=True, text=True, timeout=120).stdout
        figures = re.search(r'<table id="figures">(.*?)</table>', shown, re.S).group(1)
        self.assertEqual(len(re.findall("<td", figures)), 12, figures)  # predicted and rank 0
        waits = re.search(r'<table id="waits">(.*?)</table>', shown, re.S).group(1)
        self.assertIn("all_gather", waits)
        self.assertRegex(re.search(r'<table id="groups">(.*?)</table>', shown, re.S).group(1), r"\d+ in all.*\w \+ \w")
        self.assertRegex(shown, r'<canvas id="view"[^>]* height="\d{3}')


if __name__ == "__main__":
    unittest.main()
