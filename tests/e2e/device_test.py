"""Training on the `checked` device, whose memory the host cannot read: equal bits, so nothing but kernels, copies and collectives touches device memory.

A host that reads or writes at a device address ends with SIGSEGV there.
"""

import itertools
import os
import unittest

import bits_case
import offload_bits_test
import running
from bits_case import BitsCase, run_new, run_once

CHECKED = ("--device", "checked")
# Of presets that no other test of bits trains, so that the whole small zoo is here.
REST = {"tiny-bert": ("tiny-bert",), "resnet18": ("resnet18",), "tiny-gpt2": ("tiny-gpt2",)}
CHAINS = (0, 1, 2, 3, "auto", "fsdp", "deepcompile-ps")


class DeviceTest(BitsCase):
    def verify(self, subject, world, chain, accumulation=1, comm="local", settings="clipped", passes=(), compile_options=()):
        with self.subTest(subject, world=world, chain=chain, accumulation=accumulation, comm=comm, settings=settings, passes=passes):
            disk = ("--offload-dir", os.path.dirname(running.fresh()))
            how = {"settings": settings, "passes": passes, "compile_options": compile_options}
            expected = run_new(subject, world, chain, accumulation, options=(*disk, "--comm", comm), **how)
            got = run_new(subject, world, chain, accumulation, options=(*disk, "--comm", comm, "--poison", *CHECKED), **how)
            self.assert_same(expected, got, "checked")

    def offloaded(self, subject, world, zero, accumulation, part, space):
        """As verify(), in a part of the memory that the plan takes without offloading."""
        whole = run_once(subject, world, zero, accumulation).header["arena_bytes"]
        self.verify(
            subject,
            world,
            zero,
            accumulation,
            passes=offload_bits_test.OffloadTest.CHAINS["all"][0],
            compile_options=("--memory", f"{int(whole * part)}B", "--offload-space", space),
        )

    def test_sample(self):
        self.verify("tiny-llama", 2, 3, accumulation=2)
        self.verify("tiny-llama", 3, "auto", comm="tcp", settings="unclipped")
        self.offloaded("tiny-llama", 2, 3, 1, 0.6, "disk")

    def test_saves_resumes_and_dumps(self):
        """What else reads and writes device memory: checkpoints, weights, gradients, traces, profiles."""
        model, config = running.archive("tiny-llama"), running.train_config(**bits_case.CLIPPED)
        plan = running.compile_plan(model, 2, 3, config=config)
        files = {}
        for device in ("cpu", "checked"):
            folder = os.path.join(os.path.dirname(running.fresh()), device)
            os.makedirs(folder)
            start = [os.path.join(running.BIN, "dcrun"), "-n", "2", plan, "--data", "synthetic:1", "--device", device]
            running.run(
                [
                    *start,
                    "--weights",
                    model,
                    "--steps",
                    "8",
                    "--save",
                    f"{folder}/saved",
                    "--save-every",
                    "3",
                    "--dump-gradients",
                    f"{folder}/gradients",
                    "--trace",
                    f"{folder}/trace.json",
                    "--record-profile",
                    f"{folder}/profile.json",
                ]
            )
            running.run([*start, "--resume", f"{folder}/saved/step-00000003", "--steps", "8", "--save", f"{folder}/again.safetensors"])
            files[device] = folder
        for name in (
            "saved/step-00000008/model.safetensors",
            "saved/step-00000008/rank-1-of-2.safetensors",
            "gradients/gradients.safetensors",
            "again.safetensors",
        ):
            with self.subTest(name), open(os.path.join(files["cpu"], name), "rb") as one, open(os.path.join(files["checked"], name), "rb") as other:
                self.assertEqual(tensor_bytes(one.read()), tensor_bytes(other.read()))

    @unittest.skipUnless(running.SLOW, "set DCC_SLOW_TESTS=1")
    def test_zoo(self):
        bits_case.MORE_SUBJECTS.update(REST)
        subjects = (*bits_case.SUBJECTS, *REST)
        for subject, world, comm in itertools.product(subjects, (1, 2, 3), ("local", "tcp")):
            for chain, accumulation, settings in zip(CHAINS, itertools.cycle((1, 4)), itertools.cycle(("clipped", "unclipped", "clipped"))):
                if world > 1 or chain in (0, "auto"):
                    self.verify(subject, world, chain, accumulation, comm, settings)
        for subject, world, space in itertools.product(bits_case.SUBJECTS, (1, 2, 3), ("host", "disk")):
            self.offloaded(subject, world, 3, 1, 0.6, space)
        for subject, world in itertools.product(("tiny-llama", "tiny-gpt2 dropout", "resnet18"), (1, 2)):
            self.verify(subject, world, 3, 2, compile_options=("--recompute", "full"))


def tensor_bytes(file):
    """A safetensors file without its header, whose metadata names the run."""
    return file[8 + int.from_bytes(file[:8], "little") :]


if __name__ == "__main__":
    unittest.main()
