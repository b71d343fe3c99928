"""dcc as a user sees it: equal bytes, reports, options, what it refuses.

build/venv/bin/python tests/e2e/compile_test.py
"""

import hashlib
import json
import os
import re
import shutil
import stat
import subprocess
import unittest

import cases
import running

DCC = os.path.join(running.BIN, "dcc")
DATA = os.path.join(running.ROOT, "tests", "data")
LLAMA_70B = os.path.join(DATA, "llama_70b_cuda.pt2")

# Frozen: an option that scripts of users rely on is never renamed or dropped.
FLAGS = {
    "dcc": "--help --version",
    "dcc compile": "--chain --config --device --dim --disk-memory --fusion-estimator --grad-accum --help --host-memory --json --memory --no-cache --offload-space --output"
    " --passes --profile --providers --ranks-per-host --recompute --reduce-dtype --reduction-order --search-effort --search-time --start-from --threads --verbose --world --zero -h -o",
    "dcc profile": "--comm --device --dim --fusions --help --job-key --offload-dir --output --ranks --ranks-per-host --threads -h -n -o",
    "dcc inspect": "--as --help --output --verbose -h -o",
    "dcc explain": "--help --json -h",
    "dcc verify": "--help -h",
    "dcc simulate": "--chain --config --device --dim --disk-memory --fusion-estimator --grad-accum --help --host-memory --json --link --memory --model --no-cache --offload-space"
    " --passes --profile --providers --ranks-per-host --recompute --reduce-dtype --reduction-order --search-effort --start-from --threads --world --zero -h",
    "dcc calibrate": "--fusion-estimator --help --output --profile --recorded -h -o",
    "dcc opt": "--help --passes -h",
    "dcc passes": "--help -h",
    "dcc cache": "--help -h",
    "dcc cache ls": "--help -h",
    "dcc cache gc": "--help --keep -h",
    "dcrun": "--comm --config --data --device --dump-gradients --eval-batches --eval-data --eval-every --help --job-key --keep --lr --metrics --no-graph --offload-dir --overwrite --poison --record-profile --resume --save --save-every --shuffle --steps --timeout"
    " --trace --version --weights --weights-only-by-name -h -n",
}


def dcc(*arguments, cache=None, check=True, **kwargs):
    """A finished dcc; `cache`: the folder of its plan cache, none without."""
    environment = {**os.environ, **kwargs.pop("environment", {})}
    environment["DCC_CACHE_DIR"] = cache or os.path.join(running.scratch(), "unused-cache")
    result = subprocess.run([DCC, *arguments], capture_output=True, text=True, timeout=120, env=environment, **kwargs)
    if check and result.returncode:
        raise running.CommandFailed([DCC, *arguments], result)
    return result


def content(path):
    with open(path, "rb") as file:
        return file.read()


def folder():
    return os.path.dirname(running.fresh())


def compiled(model, *options, **kwargs):
    """The plan's bytes."""
    plan = running.fresh(".dcp")
    dcc("compile", model, "--no-cache", "-o", plan, *(options or ("--world", "2")), **kwargs)
    return content(plan)


def report(model, *options, **kwargs):
    """(what compile --json says, path of the plan)"""
    plan = running.fresh(".dcp")
    arguments = ["compile", model, "-o", plan, "--json", *options]
    return json.loads(dcc(*arguments, *([] if "cache" in kwargs else ["--no-cache"]), **kwargs).stdout), plan


def schedule_remarks(said):
    """What passes said about the schedule: not that of fused kernels, which every plan has."""
    return [remark for remark in said["remarks"] if remark["pass"] not in ("fuse-loss", "fuse-output-layer", "fuse-elementwise")]


class EqualBytes(unittest.TestCase):
    def test_path_locale_zone_umask_and_time_do_not_count(self):
        model = running.archive("tiny-llama")
        options = ("--world", "3", "--zero", "3", "--grad-accum", "2")
        expected = compiled(model, *options)
        elsewhere = os.path.join(folder(), "ein anderer Name ü.zip")
        shutil.copy(model, elsewhere)
        os.utime(elsewhere, (1, 1))
        there = os.path.dirname(elsewhere)
        cases = {
            "again": {},
            "another folder": {"cwd": "/"},
            "locale": {"environment": {"LC_ALL": "de_DE.UTF-8", "LANG": "tr_TR.UTF-8", "LC_NUMERIC": "de_DE.UTF-8"}},
            "plain locale": {"environment": {"LC_ALL": "C", "LANGUAGE": "fr"}},
            "zone": {"environment": {"TZ": "Pacific/Kiritimati"}},
            "umask": {"umask": 0o077},
            "host and user": {"environment": {"HOSTNAME": "elsewhere", "USER": "nobody", "HOME": "/nonexistent"}},
            "threads of libraries": {"environment": {"OMP_NUM_THREADS": "7"}},
        }
        for name, keywords in cases.items():
            with self.subTest(name):
                self.assertEqual(compiled(model, *options, **keywords), expected)
        with self.subTest("another file name"):
            self.assertEqual(compiled(os.path.basename(elsewhere), *options, cwd=there), expected)

    def test_the_cache_and_the_profile_path_do_not_count(self):
        model = running.archive("mlp")
        profile = running.fresh(".json")
        running.run([DCC, "profile", model, "-n", "2", "-o", profile])
        copy = os.path.join(folder(), "another.json")
        shutil.copy(profile, copy)
        cache = folder()
        plans = [compiled(model, "--world", "3", "--profile", path) for path in (profile, copy)]
        for path in (copy, profile):
            _, plan = report(model, "--world", "3", "--profile", path, cache=cache)
            plans.append(content(plan))
        self.assertEqual(len(set(plans)), 1)
        self.assertNotIn(profile.encode(), plans[0])

    def test_every_option_that_counts_changes_the_plan(self):
        model = running.archive("mlp")
        config = running.train_config(optimizer={"kind": "adamw", "lr": 0.5}, clip_norm=1.0)
        options = [
            ("--world", "2"),
            ("--world", "3"),
            ("--world", "2", "--zero", "0"),
            ("--world", "2", "--zero", "1"),
            ("--world", "2", "--zero", "2"),
            ("--world", "2", "--grad-accum", "2"),
            ("--world", "2", "--threads", "2"),
            ("--world", "2", "--grad-accum", "2", "--reduction-order", "per-step"),
            ("--world", "2", "--reduce-dtype", "bfloat16"),
            ("--world", "2", "--config", config),
            ("--world", "2", "--recompute", "full"),
            ("--world", "2", "--recompute", "off"),
            ("--world", "2", "--providers", "aten"),
        ]
        cache, plans = folder(), set()
        for option in options:
            said, plan = report(model, *option, cache=cache)
            self.assertEqual(said["cache"], "miss", option)
            plans.add(hashlib.sha256(content(plan)).hexdigest())
        self.assertEqual(len(plans), len(options))


class Reports(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = running.archive("tiny-llama")
        cls.said, cls.plan = report(cls.model, "--world", "2", "--zero", "3", "--grad-accum", "2")
        cls.whole = running.inspect(cls.plan)

    def test_json_has_a_version_and_adds_up(self):
        said = self.said
        self.assertEqual(said["schema"], "dcc.compile/2")
        self.assertEqual((said["world"], said["accumulation"], said["chain"]), (2, 2, "zero3"))
        peak, kept = said["memory"]["peak"], said["memory"]["kept"]
        self.assertEqual(sum(peak["by_kind"].values()), peak["bytes"])
        self.assertEqual(peak["bytes"], self.whole["prediction"]["live_bytes"])
        kinds = {"parameters", "gradients", "optimizer state", "activations", "gathered", "scratch"}
        self.assertLessEqual(kinds, set(kept))
        for kind in kinds - {"gathered"}:
            self.assertGreater(peak["by_kind"][kind], 0, kind)
        large = report(LLAMA_70B, "--world", "32", "--zero", "3")[0]["memory"]["peak"]["by_kind"]
        self.assertGreaterEqual(large["gathered"], 2 * 128256 * 8192)  # lm_head, whole, in bf16
        self.assertEqual((kept["gathered"], kept["activations"], kept["scratch"]), (0, 0, 0))
        self.assertLessEqual(peak["bytes"], said["memory"]["arena_bytes"]["device"])
        program = next(p for p in self.whole["programs"] if p["name"] == peak["program"])
        instruction = program["instructions"][peak["index"]]
        self.assertEqual((instruction["op"], instruction["module"]), (peak["op"], peak["module"]))
        self.assertTrue(said["memory"]["scratch_is_estimated"])
        prediction = said["prediction"]
        self.assertEqual(prediction["step_ns"], prediction["compute_ns"] + prediction["communication_ns"])
        self.assertEqual(prediction["origin"], "generic cpu table")
        bounds = prediction["bounds_ns"]
        self.assertLess(0, bounds["full_overlap"])
        self.assertLessEqual(bounds["full_overlap"], bounds["with_ends"])
        self.assertLessEqual(max(bounds.values()), prediction["step_ns"])
        self.assertEqual(prediction["figures_ns"]["table"], prediction["compute_ns"] + prediction["communication_ns"])
        self.assertEqual(list(said["wire_bytes"].values()), self.whole["prediction"]["wire_bytes"])

    def test_placements(self):
        for zero, expected in ((0, (21, 0, 0)), (1, (21, 0, 21)), (2, (21, 0, 21)), (3, (0, 21, 21))):
            facts = report(self.model, "--world", "2", "--zero", str(zero))[0]["parameters"]
            self.assertEqual((facts["resident"], facts["gathered"], facts["sharded_state"]), expected)
            self.assertEqual(facts["elements"], 123712)

    def test_text_says_each_thing_once(self):
        text = dcc("compile", self.model, "--world", "2", "--no-cache", "-o", running.fresh(".dcp")).stdout
        names = [line.split("  ")[0] for line in text.splitlines() if line and not line.startswith(" ")]
        self.assertEqual(
            names[:13],
            [
                "step",
                "plan",
                "parameters",
                "placement",
                "sums",
                "optimizer",
                "predicted step",
                "communication",
                "bounds",
                "sent per step",
                "memory",
                "copy to save",
                "peak",
            ],
        )
        self.assertEqual(len(names), len(set(names)))
        self.assertRegex(text, r"peak +.* live at instruction \d+ \(.*\) of program 'step', module \w")
        self.assertRegex(text, r"\n  activations +[\d.]+ KiB\n")
        self.assertRegex(text, r"\n  scratch .*\(estimate")

    def test_inspect(self):
        summary = dcc("inspect", self.plan, "--as=summary").stdout
        self.assertEqual(summary, dcc("inspect", self.plan).stdout)
        self.assertIn("placement", summary)
        self.assertIn("note: ", summary)
        digest = self.whole["model_digest"]
        self.assertNotIn(digest, summary)
        verbose = dcc("inspect", self.plan, "--verbose").stdout
        self.assertTrue(verbose.startswith(summary) and digest in verbose)
        memory = dcc("inspect", self.plan, "--as=memory").stdout
        self.assertIn("the largest alive there", memory)
        text = dcc("inspect", self.plan, "--as=text").stdout
        count = sum(len(p["instructions"]) for p in self.whole["programs"])
        self.assertEqual(len(re.findall(r"^ +\[\d+\] ", text, re.M)), count)
        self.assertEqual(self.whole["schema"], "dcc.plan/3")
        self.assertEqual(dcc("inspect", self.plan, "--as=poem", check=False).returncode, 64)

    def test_verify(self):
        said = dcc("verify", self.plan).stdout
        self.assertRegex(said, "levels 0 .*1 .*2 .*3 .* hold")
        self.assertIn(hashlib.sha256(content(self.plan)[48:]).hexdigest(), said)
        broken = running.fresh(".dcp")
        data = bytearray(content(self.plan))
        data[len(data) // 2] ^= 1
        with open(broken, "wb") as file:
            file.write(data)
        for command in ("verify", "inspect"):
            failed = dcc(command, broken, check=False)
            self.assertEqual((failed.returncode, failed.stdout), (65, ""))
            self.assertIn(broken, failed.stderr)

    def test_opt_and_passes(self):
        listed = [line.split() for line in dcc("passes").stdout.splitlines()]
        self.assertEqual(
            [words[1] for words in listed if words[0] == "--chain"],
            [
                "zero0",
                "zero1",
                "zero2",
                "zero3",
                "fsdp",
                "hsdp",
                "deepcompile-p",
                "deepcompile-s",
                "deepcompile-ps",
                "deepcompile-offload-optimizer",
                "deepcompile-offload-activations",
                "deepcompile-offload-parameters",
                "zero3-trace",
                "zero-offload",
                "fsdp-hf",
                "no-fusion",
                "op-fusion",
                "allreduce-fusion",
                "default-fusion",
                "ddp",
                "disco",
                "fuse-jointly",
            ],
        )
        passes = [words[0] for words in listed if words[0] not in ("--chain", "N:")]
        self.assertEqual(
            passes,
            [
                "split-by-host[=N]",
                "normalize-graph",
                "fuse-loss",
                "fuse-output-layer",
                "fuse-products",
                "fuse-elementwise[=N]",
                "shard-parameters[=N]",
                "replicate-state",
                "insert-collectives",
                "add-update",
                "schedule",
                "schedule-fast-free",
                "fuse-greedily",
                "disco[=N]",
                "fuse-jointly",
                "offload-update",
                "recompute[=N]",
                "keep-resident[=N]",
                "gather-by-block",
                "gather-again-by-block",
                "fuse-gathers[=N]",
                "bucket-reductions[=N]",
                "bucket-by-size[=N]",
                "bucket-as-ddp[=N]",
                "offload-optimizer",
                "offload-activations",
                "offload-parameters",
                "offload-optimizer-greedily",
                "offload-activations-greedily[=N]",
                "offload-parameters-greedily",
                "prefetch-gathers",
                "prefetch-gathers-greedily",
                "prefetch-gathers-by-trace",
                "keep-resident-greedily",
                "overlap-reductions[=N]",
                "keep-jointly[=N]",
                "keep-parameters[=N]",
                "offload-gradients",
                "overlap-update",
                "separate-reductions",
                "layout-arenas",
            ],
        )
        source = os.path.join(running.ROOT, "tests", "passes", "shard-parameters", "zero_3.dcir")
        with open(source) as file:
            step = file.read().split("// ----", 1)[0]
        piped = dcc("opt", "-", "--passes=shard-parameters=3", input=step)
        self.assertIn("flat_shard", piped.stdout)
        self.assertNotIn("flat_shard", step)
        wrong = dcc("opt", "-", "--passes=shard-parameter", input=step, check=False)
        self.assertEqual(wrong.returncode, 64)
        self.assertIn("did you mean 'shard-parameters'", wrong.stderr)


class DefaultCommand(unittest.TestCase):
    """What users type: no chain is named, so every pass may come up."""

    def test_every_preset_without_a_bug_of_ours(self):
        profile = os.path.join(running.ROOT, "examples", "profiles", "h100x32.json")
        for model in cases.MODELS:
            for options in (("--world", "2"), ("--world", "2", "--profile", profile), ("--world", "3", "--grad-accum", "2")):
                with self.subTest(model, options=options):
                    said, plan = report(running.archive(model), *options)
                    self.assertEqual((said["chain"], said["schedules_left_out"]), ("auto", 0))
                    dcc("verify", plan)


class Options(unittest.TestCase):
    def setUp(self):
        self.model = running.archive("tiny-llama")

    def test_threads(self):
        said, plan = report(self.model, "--world", "2", "--threads", "2")
        self.assertEqual((said["threads"], running.inspect(plan)["threads"]), (2, 2))

    def test_reduce_dtype_halves_what_gradients_send(self):
        wire = {d: report(self.model, "--world", "2", "--zero", "3", "--reduce-dtype", d)[0]["wire_bytes"] for d in ("float32", "bfloat16")}
        self.assertEqual(wire["float32"]["reduce_scatter"], 2 * wire["bfloat16"]["reduce_scatter"])
        plain = report(self.model, "--world", "2", "--zero", "3")[0]["wire_bytes"]
        self.assertEqual(plain, wire["float32"])

    def test_reduction_order_moves_the_reductions(self):
        def reduced(zero, *order):
            return report(self.model, "--world", "2", "--zero", str(zero), "--grad-accum", "4", *order)[0]["wire_bytes"]["reduce_scatter"]

        once, each = ("--reduction-order", "per-step"), ("--reduction-order", "per-micro-batch")
        self.assertEqual(reduced(3, *each), 4 * reduced(3, *once))
        self.assertEqual(reduced(3), reduced(3, *each))
        self.assertEqual(reduced(1), reduced(1, *once))

    def test_memory(self):
        said, plan = report(self.model, "--world", "2", "--zero", "3")
        need = said["memory"]["arena_bytes"]["device"]
        enough, again = report(self.model, "--world", "2", "--zero", "3", "--memory", str(need))
        self.assertEqual((enough["memory"]["arena_bytes"]["device"], schedule_remarks(enough)), (need, []))
        self.assertLessEqual(said["memory"]["peak"]["bytes"], need)
        for budget in (str(said["memory"]["peak"]["bytes"] - 1), "1", "100KiB"):
            target = running.fresh(".dcp")
            failed = dcc("compile", self.model, "--world", "2", "--zero", "3", "--memory", budget, "--recompute", "off", "-o", target, check=False)
            self.assertEqual((failed.returncode, failed.stdout), (80, ""))
            self.assertFalse(os.path.exists(target))
            self.assertRegex(failed.stderr, r"most live at index \d+ of program 'step' \(\S+ in module '\w[\w.]*'\)")
            self.assertIn(str(need), failed.stderr)
            self.assertGreaterEqual(len(re.findall(r"^ +.*[KM]iB", failed.stderr, re.M)), 5)  # the largest values

    def test_recompute_fits_budgets(self):
        """The smaller the budget, the smaller the arena and the longer the step."""

        def row(*options):
            said = report(running.archive("small-llama"), "--world", "2", "--zero", "3", *options)[0]
            memory = said["memory"]
            return memory["arena_bytes"]["device"], memory["peak"]["bytes"], said["prediction"]["step_ns"], schedule_remarks(said)

        arena, peak, step, remarks = row()
        self.assertEqual(remarks, [])
        first, rows = step, []
        for part in (1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65):
            budget = int(part * arena)
            rows.append((budget, *row("--memory", str(budget))))
        self.assertEqual(rows[0][1:], (arena, peak, step, []))
        print("\n      budget       arena        peak    predicted step    longer by")
        for budget, fits, live, longer, _ in rows:
            print(f"  {budget / 2**20:6.1f} MiB  {fits / 2**20:6.1f} MiB  {live / 2**20:6.1f} MiB  {longer / 1e6:12.2f} ms  {(longer - first) / 1e6:8.2f} ms")
            self.assertLessEqual(fits, budget)
            self.assertLessEqual(live, peak)
            self.assertGreaterEqual(longer, step)
            peak, step = live, longer
        remark = rows[-1][-1][0]
        self.assertEqual((remark["pass"], remark["code"]), ("recompute", "recomputed"))
        self.assertGreater(remark["numbers"]["kernels"], 0)
        self.assertLess(remark["numbers"]["live_after_bytes"], remark["numbers"]["live_before_bytes"])

    def test_recompute_full_and_off(self):
        def row(*options):
            said = report(self.model, "--world", "2", "--zero", "3", *options)[0]
            return said["memory"]["arena_bytes"]["device"], said["prediction"]["step_ns"], schedule_remarks(said)

        plain, full = row(), row("--recompute", "full")
        self.assertLess(full[0], plain[0])
        self.assertGreater(full[1], plain[1])
        self.assertEqual(len(full[2]), 1)
        self.assertEqual(row("--recompute", "off"), plain)
        shown = dcc("compile", self.model, "--world", "2", "--recompute", "full", "--no-cache", "-o", running.fresh(".dcp")).stdout
        self.assertRegex(shown, r"\nrecompute +program 'step': ")

    def test_wrong_values_are_usage_errors(self):
        for options in (
            ("--world", "0"),
            ("--world", "2", "--zero", "4"),
            ("--world", "2", "--grad-accum", "0"),
            ("--world", "2", "--threads", "0"),
            ("--world", "2", "--memory", "lots"),
            ("--world", "x"),
            (),
            ("--world", "2", "--reduce-dtype", "int8"),
            ("--world", "2", "--reduction-order", "never"),
            ("--world", "2", "--recompute", "some"),
            ("--world", "2", "--recompute", "full", "--passes", "normalize-graph,shard-parameters,insert-collectives,add-update,schedule,layout-arenas"),
            ("--world", "2", "--zer0", "1"),
            ("--world", "70000"),
        ):
            target = running.fresh(".dcp")
            failed = dcc("compile", self.model, "--no-cache", "-o", target, *options, check=False)
            self.assertEqual(failed.returncode, 64, (options, failed.stderr))
            self.assertFalse(os.path.exists(target))

    def test_bad_files(self):
        missing = dcc("compile", "/nonexistent.pt2", "--world", "2", "-o", running.fresh(), check=False)
        self.assertEqual(missing.returncode, 66)
        pipe = running.fresh()
        os.mkfifo(pipe)
        for target in ("/nonexistent/plan.dcp", folder(), pipe):
            failed = dcc("compile", self.model, "--world", "2", "-o", target, check=False)
            self.assertEqual((failed.returncode, failed.stdout), (73, ""), target)
            self.assertIn(target, failed.stderr)
        self.assertTrue(stat.S_ISFIFO(os.stat(pipe).st_mode))  # still what it was
        profile = running.fresh(".json")
        for text, code in (
            ("", 65),
            ("{}", 65),
            ('{"format": "dcc-profile"', 65),
            (None, 66),
            ('{"format": "dcc-profile", "version": 7, "model_digest": ""}', 76),
        ):
            if os.path.exists(profile):
                os.remove(profile)
            if text is not None:
                with open(profile, "w") as file:
                    file.write(text)
            failed = dcc("compile", self.model, "--world", "2", "--profile", profile, "-o", running.fresh(), check=False)
            self.assertEqual(failed.returncode, code, failed.stderr)
            self.assertIn(profile, failed.stderr)

    def test_flags_are_frozen(self):
        for command, expected in FLAGS.items():
            words = command.split()
            shown = running.run([os.path.join(running.BIN, words[0]), *words[1:], "--help"]).stdout
            options = re.findall(r"^  (-\S*)(?: |$)", shown, re.M)
            flags = {flag.split("=")[0] for option in options for flag in option.split(",")}
            self.assertEqual(
                sorted(flags | ({"-h"} if command == "dcc" else set())), sorted(set(expected.split()) | ({"-h"} if command == "dcc" else set())), command
            )


if __name__ == "__main__":
    unittest.main()
