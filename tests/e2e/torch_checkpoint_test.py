"""Training state from PyTorch's files to dcrun and back: torch.optim's own load_state_dict says what is right.

build/venv/bin/python tests/e2e/torch_checkpoint_test.py
"""

import copy
import contextlib
import io
import json
import os
import resource
import unittest
import unittest.mock

import torch
from safetensors.torch import save_file
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

import checkpoints
import jobs
import reference
import running
import trained_export_test as trained_export
from trained_export_test import AFTER, BEFORE, CLIP, Run, as_state, data_of

import torch_checkpoint
from dcc_export import ExportError, export_train_step, optimizer_kinds, to_torch
from dcc_export.archived import read_archive


class ConversionTest(jobs.JobTest):
    def setUp(self):
        super().setUp()
        self.run_ = Run("adamw")
        self.archive = self.path("model.pt2")

    def export(self, optimizer=None, run=None):
        run = run or self.run_
        export_train_step(run.module, run.inputs, self.archive, roles=run.roles, optimizer=optimizer, clip_norm=CLIP, check=False)

    def saved(self, content, name="optimizer.pt"):
        torch.save(content, self.path(name))
        return self.path(name)

    def convert(self, *arguments, way="to-dcrun"):
        """(exit code, what it said)"""
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            code = torch_checkpoint.main([way, *arguments])
        return code, said.getvalue()

    def converted(self, *arguments, way="to-dcrun"):
        code, said = self.convert(*arguments, way=way)
        self.assertEqual(code, 0, said)
        return said


class ToDcrunTest(ConversionTest):
    def test_dcrun_goes_on_as_pytorch_does(self):
        """The model is exported before it is trained; weights and optimizer come as files. Then the way back, into a new optimizer."""
        self.export(self.run_.optimizer)
        run = self.run_.train(data_of(self.run_.inputs, BEFORE, 1), BEFORE, 2)
        optimizer, weights = self.saved(run.optimizer.state_dict()), self.saved(run.module.state_dict(), "weights.pt")
        said = self.converted(self.archive, optimizer, "-o", self.path("run"), "--weights", weights)
        self.assertIn("settings are not taken over", said)
        held = run.state()
        for name, value in as_state(self.path("run/step-00000003")).items():
            self.assertTrue(torch.equal(value, held[name]), name)
        data = data_of(run.inputs, AFTER, 2)
        file = self.path("data.safetensors")
        save_file(data, file)
        result = jobs.dcrun(
            "-n", "2", running.compile_plan(self.archive, 2, 3), "--data", file, "--save", self.path("run"), "--resume", "latest", "--steps", "6"
        )
        self.assertEqual(result.code, 0, result.err)
        given, reverse = (run.copied().train(data, AFTER, 2, order).state() for order in (False, True))
        self.assertLessEqual(reference.compare_state(as_state(checkpoints.newest(self.path("run"))), given, [reverse])[0], 1)
        self.converted(self.path("run"), self.archive, "-o", self.path("back.pt"), way="to-torch")
        back = torch.load(self.path("back.pt"), weights_only=True)
        self.assertEqual((back["step"], back["samples"]), (6, AFTER * 2 * trained_export.BATCH))
        other = Run("adamw")
        other.module.load_state_dict(back["model"])
        other.optimizer.load_state_dict(back["optimizer"])
        self.assertEqual([g["lr"] for g in other.optimizer.param_groups], [g["lr"] for g in run.optimizer.param_groups])
        more = data_of(run.inputs, 2, 3)
        save_file(more, file)
        result = jobs.dcrun(
            "-n",
            "2",
            running.compile_plan(self.archive, 2, 1),
            "--data",
            file,
            "--save",
            self.path("more"),
            "--resume",
            self.back_to_dcrun(back, run),
            "--steps",
            "8",
        )
        self.assertEqual(result.code, 0, result.err)
        again = other.copied().train(more, 2, 2, True).state()
        self.assertLessEqual(reference.compare_state(as_state(checkpoints.newest(self.path("more"))), other.train(more, 2, 2).state(), [again])[0], 1)

    def back_to_dcrun(self, back, run):
        """The converted file converted again: the same values, element by element."""
        optimizer, weights = self.saved(back["optimizer"]), self.saved(back["model"], "weights.pt")
        self.converted(self.archive, optimizer, "-o", self.path("again"), "--weights", weights)
        one, other = (as_state(checkpoints.newest(self.path(name))) for name in ("run", "again"))
        self.assertEqual(one.keys(), other.keys())
        for name, value in one.items():
            self.assertTrue(torch.equal(value, other[name]), name)
        return self.path("again")

    def test_load_state_dict_says_which_parameter_is_which(self):
        """An optimizer of another order than the archive's, given by names."""
        self.export()
        run = self.run_
        names = {p: n for n, p in run.module.named_parameters()}
        backwards = [p for p in reversed(list(names)) if p.requires_grad]
        optimizer = torch.optim.AdamW(backwards, lr=1e-2)
        run.optimizer = optimizer
        run.train(data_of(run.inputs, 1, 1), 1, 1)
        file = self.saved(optimizer.state_dict())
        code, said = self.convert(self.archive, file, "-o", self.path("run"))
        self.assertEqual(code, 65, said)  # module order does not fit the shapes
        self.assertIn("in another order", said)
        self.write("names.json", json.dumps([names[p] for p in backwards]))
        self.converted(self.archive, file, "-o", self.path("run"), "--names", self.path("names.json"))
        fresh = Run("adamw")
        by_name = dict(fresh.module.named_parameters())
        loaded = torch.optim.AdamW([by_name[names[p]] for p in backwards])
        loaded.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        state = as_state(checkpoints.newest(self.path("run")))
        for name, parameter in by_name.items():
            for kind in ("exp_avg", "exp_avg_sq") if parameter.requires_grad else ():
                self.assertTrue(torch.equal(state[f"{kind} {name}"], loaded.state[parameter][kind]), name)

    def test_the_order_of_the_module(self):
        """Without an exported optimizer: all parameters, or those that are trained, in the module's order; names that torch saved itself."""
        self.export()
        module = self.run_.module
        for parameters in (module.parameters(), [p for p in module.parameters() if p.requires_grad], list(module.named_parameters())):
            self.run_.optimizer = torch.optim.AdamW(parameters, lr=1e-2)
            self.run_.train(data_of(self.run_.inputs, 1, 1), 1, 1)
            file = self.saved({"epoch": 3, "optim": self.run_.optimizer.state_dict()})
            self.converted(self.archive, file, "-o", self.path("run"), "--key", "optim", "--weights", self.saved(module.state_dict(), "w.pt"))
            expected = self.run_.state()
            for name, value in as_state(checkpoints.newest(self.path("run"))).items():
                self.assertTrue(torch.equal(value, expected[name]), name)

    def test_names_of_a_compiled_module(self):
        """Its state_dict() and its optimizer's names have the wrapper's prefix; the archive has not."""
        module = torch.compile(self.run_.module, backend="eager")
        export_train_step(module, self.run_.inputs, self.archive, roles=self.run_.roles, check=False)
        self.run_.optimizer = torch.optim.AdamW(list(module.named_parameters())[::-1], lr=1e-2)
        self.run_.train(data_of(self.run_.inputs, 1, 1), 1, 1)
        optimizer, weights = self.saved(self.run_.optimizer.state_dict()), self.saved(module.state_dict(), "w.pt")
        self.converted(self.archive, optimizer, "-o", self.path("run"), "--weights", weights)
        expected = self.run_.state()
        for name, value in as_state(checkpoints.newest(self.path("run"))).items():
            self.assertTrue(torch.equal(value, expected[name]), name)

    def test_names_in_place_of_numbers(self):
        """What torch.distributed.checkpoint makes of an optimizer's state: parameters by name, here in another order than the module's."""
        self.export()
        module = self.run_.module
        self.run_.optimizer = torch.optim.AdamW([p for p in reversed(list(module.parameters())) if p.requires_grad], lr=1e-2)
        self.run_.train(data_of(self.run_.inputs, 1, 1), 1, 1)
        state = get_optimizer_state_dict(module, self.run_.optimizer)
        self.assertTrue(all(isinstance(name, str) for name in state["param_groups"][0]["params"]))
        self.converted(self.archive, self.saved(state), "-o", self.path("run"), "--weights", self.saved(module.state_dict(), "w.pt"))
        expected = self.run_.state()
        for name, value in as_state(checkpoints.newest(self.path("run"))).items():
            self.assertTrue(torch.equal(value, expected[name]), name)
        state["param_groups"][0]["params"] = [f"module.{name}" for name in state["param_groups"][0]["params"]]
        state["state"] = {f"module.{name}": value for name, value in state["state"].items()}
        code, said = self.convert(self.archive, self.saved(state), "-o", self.path("other"))
        self.assertEqual(code, 65, said)
        self.assertIn("there is no parameter module.", said)

    def test_sgd(self):
        run = Run("sgd")
        self.export(run.optimizer, run)
        run.train(data_of(run.inputs, 2, 1), 2, 1)
        said = self.converted(self.archive, self.saved(run.optimizer.state_dict()), "-o", self.path("run"), "--steps-taken", "2", "--samples", "8")
        self.assertNotIn("does not count", said)
        index = checkpoints.index(self.path("run/step-00000002"))
        self.assertEqual((index["step"], index["samples"], index["samples_in_epoch"]), (2, 8, 8))
        code, said = self.convert(
            self.archive, self.saved(Run("adamw").train(data_of(run.inputs, 1, 1), 1, 1).optimizer.state_dict()), "-o", self.path("other")
        )
        self.assertEqual(code, 65)
        self.assertIn("is of adamw, the archive's optimizer is sgd", said)

    def test_every_kind_comes_back_as_its_own_class(self):
        for name, kind in optimizer_kinds.KINDS.items():
            with self.subTest(name):
                run = Run(name)
                self.export(run.optimizer, run)
                run.train(data_of(run.inputs, 2, 1), 2, 1)
                optimizer, weights = self.saved(run.optimizer.state_dict()), self.saved(run.module.state_dict(), "weights.pt")
                folder = self.path(name)
                self.converted(self.archive, optimizer, "-o", folder, "--weights", weights, "--steps-taken", "2")
                self.converted(folder, self.archive, "-o", self.path("back.pt"), way="to-torch")
                other = Run(name)
                back = torch.load(self.path("back.pt"), weights_only=True)
                other.module.load_state_dict(back["model"])
                other.optimizer.load_state_dict(back["optimizer"])
                self.assertIs(type(other.optimizer), kind.type)
                expected, found = run.state(), other.state()
                self.assertEqual(found.keys(), expected.keys())
                for key, value in expected.items():
                    self.assertTrue(torch.equal(found[key], value), key)

    def test_names_keep_the_groups_of_the_export(self):
        """The way back for an optimizer with the same groups, each in another order than at the export."""
        self.export(self.run_.optimizer)
        self.run_.train(data_of(self.run_.inputs, 1, 1), 1, 1)
        optimizer, weights = self.saved(self.run_.optimizer.state_dict()), self.saved(self.run_.module.state_dict(), "weights.pt")
        self.converted(self.archive, optimizer, "-o", self.path("run"), "--weights", weights)
        other = Run("adamw")
        groups = [{**group, "params": group["params"][::-1]} for group in trained_export.groups(other.module)]
        other.optimizer = torch.optim.AdamW(groups)
        names = {p: n for n, p in other.module.named_parameters()}
        self.write("names.json", json.dumps([names[p] for group in groups for p in group["params"]]))
        self.converted(self.path("run"), self.archive, "-o", self.path("back.pt"), "--names", self.path("names.json"), way="to-torch")
        back = torch.load(self.path("back.pt"), weights_only=True)
        other.module.load_state_dict(back["model"])
        other.optimizer.load_state_dict(back["optimizer"])
        expected, found = self.run_.state(), other.state()
        self.assertEqual(found.keys(), expected.keys())
        for key, value in expected.items():
            self.assertTrue(torch.equal(found[key], value), key)

    def test_a_checkpoint_of_an_unknown_optimizer_is_refused_by_name(self):
        self.export(self.run_.optimizer)
        self.run_.train(data_of(self.run_.inputs, 1, 1), 1, 1)
        self.converted(self.archive, self.saved(self.run_.optimizer.state_dict()), "-o", self.path("run"))
        checkpoint = to_torch.StoredCheckpoint(self.path("run"))
        checkpoint.index["optimizer"] = "lion"
        with self.assertRaisesRegex(ExportError, "step-00000001 is of the optimizer 'lion'.* there are adamw, sgd"):
            to_torch.convert(checkpoint, read_archive(self.archive))

    def test_a_bf16_archive_gets_float32_masters(self):
        module = copy.deepcopy(self.run_.module).to(torch.bfloat16)
        export_train_step(module, self.run_.inputs, self.archive, roles=self.run_.roles, optimizer=torch.optim.AdamW(module.parameters()), check=False)
        self.run_.optimizer = torch.optim.AdamW(self.run_.module.parameters(), lr=1e-2)
        self.run_.train(data_of(self.run_.inputs, 1, 1), 1, 1)
        optimizer, weights = self.saved(self.run_.optimizer.state_dict()), self.saved(self.run_.module.state_dict(), "w.pt")
        self.converted(self.archive, optimizer, "-o", self.path("run"), "--weights", weights)
        state = checkpoints.state(self.path("run/step-00000001"))
        for name, parameter in self.run_.module.named_parameters():
            if parameter.requires_grad:
                self.assertEqual(state["master", name, None].tobytes(), parameter.detach().numpy().tobytes())
            self.assertEqual(state["parameter", name, None].tobytes(), parameter.detach().to(torch.bfloat16).view(torch.int16).numpy().tobytes())
        result = jobs.dcrun(running.compile_plan(self.archive, 1, 0), "--data", "synthetic:1", "--steps", "2", "--resume", self.path("run"))
        self.assertEqual(result.code, 0, result.err)


class RefusedTest(ConversionTest):
    def test_a_full_disk(self):
        self.export(self.run_.optimizer)
        self.run_.train(data_of(self.run_.inputs, 1, 1), 1, 1)
        self.converted(self.archive, self.saved(self.run_.optimizer.state_dict()), "-o", self.path("run"))
        os.mkdir(self.path("out"))
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_FSIZE, before)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))  # no file grows beyond that
        code, said = self.convert(self.path("run"), self.archive, "-o", self.path("out/back.pt"), way="to-torch")
        self.assertEqual(code, 73, said)
        self.assertIn("cannot write", said)
        self.assertEqual(os.listdir(self.path("out")), [])

    def test_what_does_not_fit_is_named(self):
        self.export(self.run_.optimizer)
        run = self.run_.train(data_of(self.run_.inputs, 1, 1), 1, 1)
        good = run.optimizer.state_dict()
        weights = run.module.state_dict()
        fewer = copy.deepcopy(good)
        fewer["param_groups"][0]["params"].pop()
        missing = {k: v for k, v in weights.items() if k != "gain"}
        adam = torch.optim.Adam(run.module.parameters(), weight_decay=0.1).state_dict()
        cases = [
            (65, "groups of .*that of the export had", fewer, None),
            (65, "has taken no step", torch.optim.AdamW(trained_export.groups(run.module)).state_dict(), None),
            (65, "holds no optimizer.state_dict\\(\\), but 'step', 'model'", {"step": 3, "model": weights}, None),
            (65, "Adam's weight decay", adam, None),
            (65, "is not of AdamW or SGD", torch.optim.RMSprop(run.module.parameters()).state_dict(), None),
            (65, "lacks gain", good, missing),
            (65, "has more, which the model", good, {**weights, "more": torch.zeros(1)}),
            (65, "gain has shape \\[2\\]", good, {**weights, "gain": torch.zeros(2)}),
        ]
        for code, pattern, optimizer, model in cases:
            with self.subTest(pattern):
                extra = ["--weights", self.saved(model, "w.pt")] if model else []
                result, said = self.convert(self.archive, self.saved(optimizer), "-o", self.path("run"), *extra)
                self.assertEqual(result, code, said)
                self.assertRegex(said, pattern)
        file = self.saved(good)
        for code, pattern, arguments in (
            (66, "nowhere.pt is missing", [self.archive, self.path("nowhere.pt")]),
            (66, "nowhere.pt2 is missing", [self.path("nowhere.pt2"), file]),
            (65, "cannot be read", [self.archive, self.write("junk.pt", b"junk")]),
            (66, "nowhere.safetensors is missing", [self.archive, file, "--weights", self.path("nowhere.safetensors")]),
            (65, "junk.safetensors cannot be read", [self.archive, file, "--weights", self.write("junk.safetensors", b"junk")]),
            (65, "cannot be read", [self.write("junk.pt2", b"junk"), file]),
            (65, "3 names are given", [self.archive, file, "--names", self.write("n.json", '["a", "b", "c"]')]),
        ):
            with self.subTest(pattern):
                result, said = self.convert(*arguments, "-o", self.path("run"))
                self.assertEqual(result, code, said)
                self.assertRegex(said, pattern)
        self.assertFalse(os.path.exists(self.path("run")))

    def test_a_checkpoint_that_is_damaged_or_of_another_model(self):
        self.export(self.run_.optimizer)
        self.run_.train(data_of(self.run_.inputs, 1, 1), 1, 1)
        self.converted(self.archive, self.saved(self.run_.optimizer.state_dict()), "-o", self.path("run"))
        folder = self.path("run/step-00000001")
        for name in sorted(os.listdir(folder)):
            with self.subTest(name), open(os.path.join(folder, name), "r+b") as file:
                content = file.read()
                file.seek(len(content) * 2 // 3)
                file.write(bytes([content[len(content) * 2 // 3] ^ 4]))
                file.flush()
                code, said = self.convert(folder, self.archive, "-o", self.path("back.pt"), way="to-torch")
                self.assertEqual(code, 65, said)
                self.assertIn("damaged", said)
                file.seek(0)
                file.write(content)
        self.damaged_headers(folder)
        with unittest.mock.patch.dict(to_torch._TYPES, clear=True):
            code, said = self.convert(folder, self.archive, "-o", self.path("back.pt"), way="to-torch")
        self.assertEqual(code, 65, said)
        self.assertRegex(said, "buffer norm.num_batches_tracked in .* is of type 'i64', which is not known here")
        other = running.archive("mlp")
        code, said = self.convert(folder, other, "-o", self.path("back.pt"), way="to-torch")
        self.assertEqual(code, 65)
        self.assertIn("is not of the model of", said)
        code, said = self.convert(self.path("empty"), self.archive, "-o", self.path("back.pt"), way="to-torch")
        self.assertEqual(code, 66)
        for name in ("rank-0-of-1.safetensors", "model.safetensors", "rank-0-of-1.json"):  # in the other order of reading
            with self.subTest(name):
                os.remove(os.path.join(folder, name))
                code, said = self.convert(folder, self.archive, "-o", self.path("back.pt"), way="to-torch")
                self.assertEqual(code, 66, said)
                self.assertIn(f"{name}, which its checkpoint names, cannot be read: No such file or directory; take another", said)
        self.assertFalse(os.path.exists(self.path("back.pt")))

    def damaged_headers(self, folder):
        """A bit of a header is another: the checkpoint is refused in a sentence, or says what it said."""
        whole = to_torch.StoredCheckpoint(folder).values
        with open(os.path.join(folder, "model.safetensors"), "r+b") as file:
            content = file.read()
            for place in range(0, 8 + int.from_bytes(content[:8], "little"), 5):
                for bit in (1, 128):
                    file.seek(place)
                    file.write(bytes([content[place] ^ bit]))
                    file.flush()
                    try:
                        found = to_torch.StoredCheckpoint(folder).values
                    except ExportError as error:
                        self.assertIn("model.safetensors is damaged", str(error))
                    else:
                        self.assertTrue(all(torch.equal(value, whole[key]) for key, value in found.items()))
                    file.seek(place)
                    file.write(content[place : place + 1])

    def test_what_the_system_refuses_is_a_sentence(self):
        for code, error, pattern in (
            (66, FileNotFoundError(2, "No such file or directory", "gone"), "cannot read gone: No such file or directory; give a file"),
            (73, OSError(28, "No space left on device"), "cannot write: No space left on device; free space"),
            (70, KeyError("params"), "the conversion failed with KeyError: 'params' at .*report it"),
        ):
            with self.subTest(code), unittest.mock.patch("torch_checkpoint.read_archive", side_effect=error):
                result, said = self.convert(self.archive, "optimizer.pt", "-o", self.path("run"))
                self.assertEqual(result, code, said)
                self.assertRegex(said, f"^torch_checkpoint.py: {pattern}")


if __name__ == "__main__":
    unittest.main()
