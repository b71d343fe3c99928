"""dcc simulate: a plan's step on another machine, without compiling it again, and its decisions for other numbers of ranks.

build/venv/bin/python tests/e2e/simulate_test.py
"""

import functools
import json
import os
import shutil
import subprocess
import unittest

import running

DCC = os.path.join(running.BIN, "dcc")
LLAMA_70B = os.path.join(running.ROOT, "tests", "data", "llama_70b_cuda.pt2")
H100 = os.path.join(running.ROOT, "examples", "profiles", "h100x32.json")
H200 = os.path.join(running.ROOT, "examples", "profiles", "h200x8.json")


def dcc(*arguments):
    return subprocess.run([DCC, *arguments], capture_output=True, text=True, timeout=300)


@functools.cache
def compiled(model, *options):
    """(path of the plan, what compile predicts)"""
    plan = running.fresh(".dcp")
    said = running.run([DCC, "compile", model, "--no-cache", "--json", "-o", plan, *options]).stdout
    return plan, json.loads(said)["prediction"]


def simulated(plan, *options):
    said = json.loads(running.run([DCC, "simulate", plan, "--json", *options]).stdout)
    assert said["schema"] == "dcc.simulate/1"
    return said


def large(chain="zero3"):
    return compiled(LLAMA_70B, "--world", "32", "--chain", chain, "--profile", H100)


class Repeats(unittest.TestCase):
    """With what the plan was compiled for, the simulation is the compiler's own."""

    def check(self, plan, prediction, *options):
        again = simulated(plan, *options)["prediction"]
        for key in ("step_ns", "compute_ns", "communication_ns", "copy_ns", "contention_ns", "figures_ns", "origin"):
            self.assertEqual(again[key], prediction[key], key)
        for bound in ("full_overlap", "with_ends", "with_contention", "without_norm"):
            self.assertEqual(again["bounds_ns"][bound], prediction["bounds_ns"][bound], bound)
        self.assertLessEqual(max(again["bounds_ns"].values()), again["step_ns"])
        self.assertEqual(again["exposed_ns"], again["step_ns"] - again["compute_ns"] - again["contention_ns"])

    def test_a_measured_profile(self):
        model, profile = running.archive("tiny-llama"), running.fresh(".json")
        running.run([DCC, "profile", model, "-n", "2", "-o", profile])
        for options in (
            ("--chain", "zero3"),
            ("--chain", "zero1", "--grad-accum", "3"),
            ("--chain", "fsdp"),
            ("--chain", "auto"),
            ("--chain", "zero2", "--recompute", "full"),
        ):
            with self.subTest(options=options):
                self.check(*compiled(model, "--world", "2", "--profile", profile, *options), "--profile", profile)

    def test_no_profile(self):
        self.check(*compiled(running.archive("tiny-llama"), "--world", "3", "--threads", "2"))

    def test_a_large_plan(self):
        for chain in ("zero3", "fsdp"):
            self.check(*large(chain), "--profile", H100, "--world", "32")


class OtherMachines(unittest.TestCase):
    def test_a_faster_link(self):
        plan, prediction = large()
        before = simulated(plan, "--profile", H100)
        self.assertLess(before["link"]["step_ns_with_1e9_more"], prediction["step_ns"])
        faster = simulated(plan, "--profile", H100, "--link", "400")
        self.assertEqual(faster["link"]["bytes_per_s"], 400 * 10**9)
        self.assertLess(faster["prediction"]["step_ns"], before["link"]["step_ns_with_1e9_more"])
        self.assertEqual(faster["prediction"]["compute_ns"], prediction["compute_ns"])
        one_more = simulated(plan, "--profile", H100, "--link", "401")["prediction"]["step_ns"]
        self.assertAlmostEqual(one_more, faster["link"]["step_ns_with_1e9_more"], delta=5000)  # a ns for each collective

    def test_another_profile(self):
        plan, prediction = large()
        other = dcc("simulate", plan, "--profile", H200)
        self.assertEqual(other.returncode, 0, other.stderr)
        self.assertNotIn(prediction["origin"], other.stdout)
        without = dcc("simulate", plan)
        self.assertIn("from generic cpu table", without.stdout)
        self.assertIn("compiled with profile " + prediction["origin"].split()[1], without.stderr)

    def test_more_memory(self):
        plan, _ = large()
        arena = simulated(plan)["memory"]["arena_bytes"]
        said = simulated(plan, "--memory", str(arena + 2**30))["memory"]
        self.assertEqual((said["arena_bytes"], said["budget_bytes"]), (arena, arena + 2**30))
        text = dcc("simulate", plan, "--memory", "128GiB").stdout
        self.assertRegex(text, r"memory +79\.8 GiB per rank, 48\.\d GiB to spare; 1 GiB more buys this plan nothing.*only dcc compile --memory says\n")

    def test_text_says_each_thing_once(self):
        text = dcc("simulate", large()[0], "--profile", H100).stdout
        names = [line.split("  ")[0] for line in text.splitlines()]
        self.assertEqual(names, ["plan", "predicted step", "communication", "bounds", "figures", "link", "memory"])
        self.assertRegex(text, r"link +\d+\.\d+ GB/s .*; 1 GB/s more: [\d.]+ m?s less \([\d.]+ %\)\n")


class Refusals(unittest.TestCase):
    def test_what_is_part_of_the_plan(self):
        plan, _ = compiled(running.archive("tiny-llama"), "--world", "3", "--threads", "2")
        for options, code, said in (
            (("--world", "2"), 78, r"error\[DC7102\]: the plan is for 3 ranks: .*compile the model with --world 2"),
            (("--memory", "1KiB"), 80, r"error\[DC7103\]: the plan takes \d+ bytes .*compile the model with --memory 1024"),
            (("--memory", "lots"), 64, r"error\[DC\d+\]: "),
            (("--link", "-1"), 64, r"error\[DC2800\]: "),
            (("--link", "1e9"), 64, r"error\[DC2806\]: --link is in GB/s"),
            (("--link", "fast"), 64, r"error\[DC2800\]: "),
            (("--profile", "/nonexistent.json"), 66, r"/nonexistent\.json"),
            (("--profile", plan), 65, r"measure again"),
        ):
            failed = dcc("simulate", plan, *options)
            self.assertEqual((failed.returncode, failed.stdout), (code, ""), (options, failed.stderr))
            self.assertRegex(failed.stderr, said)
        self.assertEqual(dcc("simulate", "/nonexistent.dcp").returncode, 66)
        self.assertEqual(dcc("simulate", __file__).returncode, 65)


def scaled(*options):
    said = json.loads(running.run([DCC, "simulate", "--json", "--no-cache", *options]).stdout)
    assert said["schema"] == "dcc.scaling/1"
    return said


class OtherWorlds(unittest.TestCase):
    """A plan's decisions for another number of ranks are those of a plan that is compiled for it with the same chain."""

    def check(self, model, plan, rows, *options):
        passes = running.inspect(plan)["passes"]
        self.assertTrue(rows)
        for row in rows:
            ranks = ("--world", str(row["world"]), "--grad-accum", str(row["accumulation"]))
            _, fresh = compiled(model, *ranks, "--passes", passes, *options)
            for key in ("step_ns", "exposed_ns"):
                self.assertEqual(row[key], fresh[key] if key in fresh else fresh["step_ns"] - fresh["compute_ns"] - fresh["contention_ns"], (key, row))
            rate = 1e9 * row["world"] * row["accumulation"] / row["step_ns"]
            self.assertAlmostEqual(row["micro_batches_per_s"] / rate, 1, places=9)

    def test_each_row_is_a_plan(self):
        model = running.archive("tiny-llama")
        for chain in ("auto", "zero1", "fsdp"):
            with self.subTest(chain=chain):
                plan, _ = compiled(model, "--world", "4", "--chain", chain, "--reduction-order", "per-micro-batch")
                said = scaled(plan, "--model", model, "--world", "1,2,7", "--grad-accum", "1,3")
                self.assertEqual([(row["world"], row["accumulation"]) for row in said["rows"]], [(1, 1), (1, 3), (2, 1), (2, 3), (7, 1), (7, 3)])
                self.check(model, plan, said["rows"], "--reduction-order", "per-micro-batch")

    def test_a_measured_profile_and_a_training_configuration(self):
        model, profile = running.archive("tiny-llama"), running.fresh(".json")
        running.run([DCC, "profile", model, "-n", "2", "-o", profile])
        config = running.train_config(optimizer={"kind": "adamw", "lr": 0.1}, clip_norm=0.5)
        with_both = ("--profile", profile, "--config", config)
        plan, prediction = compiled(model, "--world", "2", *with_both)
        said = scaled(plan, "--model", model, "--world", "2,4", *with_both)
        self.assertEqual(said["rows"][0]["step_ns"], prediction["step_ns"])
        self.assertEqual(said["rows"][0]["efficiency"], 1)
        self.check(model, plan, said["rows"], *with_both)
        failed = dcc("simulate", plan, "--model", model, "--world", "4", "--profile", profile)
        self.assertEqual((failed.returncode, failed.stdout), (76, ""))
        self.assertRegex(failed.stderr, r"error\[DC7032\]: .*--config")

    def test_a_large_plan(self):
        profile = ("--profile", H100)
        plan, prediction = large("fsdp")
        said = scaled(plan, "--model", LLAMA_70B, "--world", "32,64", *profile)
        self.assertEqual(said["base"]["step_ns"], prediction["step_ns"])
        self.assertEqual(said["rows"][0]["step_ns"], prediction["step_ns"])
        self.check(LLAMA_70B, plan, said["rows"], *profile)
        faster = scaled(plan, "--model", LLAMA_70B, "--world", "32,64", "--link", "400", *profile)
        for before, after in zip(said["rows"], faster["rows"], strict=True):
            self.assertLess(after["step_ns"], before["step_ns"])
        self.assertEqual(faster["rows"][0]["step_ns"], simulated(plan, "--link", "400", *profile)["prediction"]["step_ns"])

    def test_a_budget_and_the_worlds_that_keep_it(self):
        model = running.archive("tiny-llama")
        most = simulated(compiled(model, "--world", "8", "--zero", "3")[0])["memory"]["arena_bytes"]
        budget = ("--memory", str(most))
        plan, prediction = compiled(model, "--world", "8", "--zero", "3", *budget)
        said = scaled(plan, "--model", model, "--world", "8,1")
        kept, above = said["rows"]
        self.assertEqual((kept["step_ns"], kept["keeps_budget"], said["budget_bytes"]), (prediction["step_ns"], True, most))
        self.assertEqual((above["keeps_budget"], above["error"]["code"], above["error"]["exit_code"]), (False, "DC7010", 80))
        self.assertGreater(above["memory_bytes"], most)
        refused = dcc("compile", model, "--world", "1", "--passes", running.inspect(plan)["passes"], *budget, "-o", running.fresh(".dcp"))
        self.assertEqual(refused.returncode, 80)
        text = dcc("simulate", plan, "--model", model, "--world", "8,1").stdout.splitlines()
        self.assertRegex(text[-2], r"^ +8 .* kept$")
        self.assertRegex(text[-1], r"^ +1 .* above$")

    def test_a_world_that_hosts_do_not_divide_is_a_row(self):
        model = running.archive("tiny-llama")
        plan, _ = compiled(model, "--world", "4", "--chain", "hsdp", "--ranks-per-host", "2")
        said = scaled(plan, "--model", model, "--world", "2,3,6")
        self.assertEqual(["step_ns" in row for row in said["rows"]], [True, False, True])
        self.assertIn("3 ranks do not stand 2 on each host", said["rows"][1]["error"]["text"])
        self.check(model, plan, [said["rows"][2]], "--ranks-per-host", "2")
        # No row at all is an error.
        failed = dcc("simulate", plan, "--model", model, "--world", "3,5")
        self.assertEqual(failed.returncode, 64)
        self.assertRegex(failed.stderr, r"error\[DC2612\]")

    def test_from_an_archive(self):
        model = running.archive("tiny-llama")
        # By what the files hold, whatever they are called.
        as_plan, as_archive = running.fresh(".dcp"), running.fresh(".pt2")
        shutil.copy(model, as_plan)
        plan, prediction = compiled(model, "--world", "4", "--chain", "fsdp")
        shutil.copy(plan, as_archive)
        said = scaled(as_plan, "--world", "2,4", "--chain", "fsdp")
        self.assertEqual(said["rows"][1]["step_ns"], prediction["step_ns"])
        self.assertEqual((said["base"]["world"], said["rows"][0]["efficiency"]), (2, 1))
        self.assertEqual(simulated(as_archive)["prediction"]["step_ns"], prediction["step_ns"])
        searched = scaled(model, "--world", "4")["rows"][0]["step_ns"]
        self.assertEqual(searched, compiled(model, "--world", "4")[1]["step_ns"])
        self.assertLessEqual(searched, prediction["step_ns"] * 1.001)

    def test_what_does_not_go_together(self):
        model, other = running.archive("tiny-llama"), running.archive("tiny-gpt2")
        plan, _ = compiled(model, "--world", "3", "--threads", "2")
        cut = running.fresh(".dcp")
        with open(plan, "rb") as file, open(cut, "wb") as out:
            out.write(file.read()[:5000])
        foreign = (running.inspect(plan)["model_digest"], running.inspect(compiled(other, "--world", "3")[0])["model_digest"])
        for arguments, code, said in (
            ((plan, "--model", other, "--world", "4"), 76, rf"error\[DC7031\]: .*{foreign[0]}.*{foreign[1]}"),
            ((plan, "--model", "/nonexistent.pt2", "--world", "4"), 66, r"/nonexistent\.pt2"),
            ((plan, "--model", plan, "--world", "4"), 65, r"error\[DC\d+\]: "),
            ((cut, "--model", model, "--world", "4"), 65, r"error\[DC\d+\]: "),
            ((plan, "--model", model, "--world", "0"), 64, r"error\[DC2815\]: --world takes whole numbers of 1 or more"),
            ((plan, "--model", model, "--world", "2,x"), 64, r"error\[DC2815\]"),
            ((plan, "--model", model, "--world", "2,"), 64, r"error\[DC2815\]"),
            ((plan, "--model", model, "--world", "2,,4"), 64, r"error\[DC2815\]"),
            ((plan, "--model", model, "--world", "99999999999"), 64, r"error\[DC2815\]"),
            ((plan, "--model", model, "--world", "65537"), 64, r"error\[DC2801\]"),
            ((plan, "--model", model, "--grad-accum", "1,-2"), 64, r"error\[DC2815\]: --grad-accum"),
            ((plan, "--model", model, "--chain", "zero3"), 64, r"error\[DC2816\]: .*is a plan"),
            ((plan, "--world", "2,4"), 64, r"error\[DC2816\]: .*--model"),
            ((plan, "--grad-accum", "2"), 64, r"error\[DC2816\]: .*--model"),
            ((model, "--model", model, "--world", "4"), 64, r"error\[DC2816\]: .*is an archive itself"),
            ((model,), 64, r"error\[DC2816\]: .*--world 4,8"),
            ((model, "--world", "4", "--chain", "zero9"), 64, r"error\[DC2610\]"),
        ):
            failed = dcc("simulate", "--no-cache", *arguments)
            self.assertEqual(failed.returncode, code, (arguments, failed.stderr))
            self.assertRegex(failed.stderr, said)


class Retargeting(unittest.TestCase):
    """dcc compile --start-from: a search that knows an earlier plan is no slower than that plan's chain."""

    def test_it_is_no_slower_than_the_earlier_decisions(self):
        model = running.archive("tiny-llama")
        plan, _ = compiled(model, "--world", "2", "--grad-accum", "2")
        digest = dcc("verify", plan).stdout.split()[-1]
        for effort in ("1", "48"):
            said = scaled(plan, "--model", model, "--world", "3,8")
            for row in said["rows"]:
                ranks = ("--world", str(row["world"]), "--grad-accum", "2", "--search-effort", effort)
                again, prediction = compiled(model, *ranks, "--start-from", plan)
                self.assertLessEqual(prediction["step_ns"], row["step_ns"])
                remark = next(one for one in running.inspect(again)["remarks"] if one["code"] == "chain-chosen")
                self.assertRegex(remark["text"], f"; (went on from )?the chain of plan {digest[:12]}, which takes ")
                self.assertEqual(remark["numbers"]["earlier_step_ns"], row["step_ns"])
                self.assertIn(f" start-from={digest} ", running.inspect(again)["options"])

    def test_the_digest_is_part_of_the_cache_key(self):
        model, cache = running.archive("tiny-llama"), running.fresh()
        first, _ = compiled(model, "--world", "2")
        second, _ = compiled(model, "--world", "2", "--zero", "3")
        elsewhere = running.fresh(".dcp")
        shutil.copy(first, elsewhere)

        def use(*options):
            command = [DCC, "compile", model, "--world", "4", "--json", "-o", running.fresh(".dcp"), *options]
            return json.loads(running.run(command, env={**os.environ, "DCC_CACHE_DIR": cache}).stdout)["cache"]

        self.assertEqual(use(), "miss")
        self.assertEqual(use("--start-from", first), "miss")
        self.assertEqual(use("--start-from", elsewhere), "hit")
        self.assertEqual(use("--start-from", second), "miss")
        self.assertEqual(use("--start-from", second), "hit")
        self.assertEqual(use(), "hit")

    def test_a_chain_that_does_not_work_here_is_said(self):
        model = running.archive("tiny-llama")
        hosts, _ = compiled(model, "--world", "4", "--chain", "hsdp", "--ranks-per-host", "2")
        again, prediction = compiled(model, "--world", "3", "--start-from", hosts)
        self.assertEqual(prediction["step_ns"], compiled(model, "--world", "3")[1]["step_ns"])
        remark = next(one for one in running.inspect(again)["remarks"] if one["code"] == "chain-chosen")
        self.assertRegex(remark["text"], r"could not start from plan [0-9a-f]{12}: split-by-host does not know")

    def test_refusals(self):
        model = running.archive("tiny-llama")
        plan, _ = compiled(model, "--world", "2")
        cut = running.fresh(".dcp")
        with open(plan, "rb") as file, open(cut, "wb") as out:
            out.write(file.read()[:5000])
        for options, code, said in (
            (("--start-from", plan, "--chain", "zero3"), 64, "--start-from needs --chain auto"),
            (("--start-from", plan, "--zero", "3"), 64, "--start-from needs --chain auto"),
            (("--start-from", plan, "--passes", "normalize-graph"), 64, "--start-from needs --chain auto"),
            (("--start-from", "/nonexistent.dcp"), 66, "/nonexistent.dcp"),
            (("--start-from", cut), 65, "error[DC"),
            (("--start-from", model), 65, "error[DC"),
        ):
            output = running.fresh(".dcp")
            failed = dcc("compile", model, "--world", "4", "--no-cache", "-o", output, *options)
            self.assertEqual((failed.returncode, failed.stdout), (code, ""), (options, failed.stderr))
            self.assertIn(said, failed.stderr)
            self.assertFalse(os.path.exists(output))


if __name__ == "__main__":
    unittest.main()
