"""Ranks that do not know that they share a host: variables by hand, one torchrun agent per rank, --comm tcp.

They meet over loopback. The parameters are those of `dcrun -n`, bit by bit; a rank that dies or stands still
is named.

    build/venv/bin/python tests/e2e/tcp_test.py
"""

import contextlib
import json
import os
import signal
import socket
import sys
import unittest

import bits_case
import jobs
import rotation
import running

STEPS = bits_case.STEPS


def free_port():
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def by_hand(rank, world, port, per_host=1):
    """As if so many ranks shared a host, and the others had other hosts."""
    numbers = {"RANK": rank, "WORLD_SIZE": world, "LOCAL_RANK": rank % per_host, "LOCAL_WORLD_SIZE": per_host, "MASTER_PORT": port}
    return {**{name: str(value) for name, value in numbers.items()}, "MASTER_ADDR": "127.0.0.1"}


def agent(rank, world, port, *options):
    """torchrun as node `rank` of `world`, with one worker."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--no-python", "--nnodes", str(world), "--nproc-per-node", "1"]
    return [*torchrun, *(options or ("--node-rank", str(rank), "--master-addr", "127.0.0.1", "--master-port", str(port)))]


class TcpCase(bits_case.BitsCase, jobs.JobTest):
    """Trains `self.model` on hosts, and reads what came of it."""

    def compiled(self, subject, world, zero, *options):
        self.model = running.archive(*bits_case.SUBJECTS[subject])
        config = running.train_config(**bits_case.CLIPPED)
        return running.compile_plan(self.model, world, zero, 1, *options, config=config)

    def arguments(self, plan, *options):
        """Of dcrun: saves into the test's folder."""
        files = ["--metrics", self.path("metrics.jsonl"), "--save", self.path("model.safetensors")]
        return [plan, "--weights", self.model, "--data", "synthetic:1", "--steps", str(STEPS), *files, "--overwrite", *options]

    def start_all(self, commands):
        """One job for each (command, variables)."""
        started = [jobs.Job(command, variables) for command, variables in commands]
        for job in started:
            self.addCleanup(job.end)
        return started

    def hosts(self, world, arguments, per_host=1):
        port = free_port()
        dcrun = os.path.join(running.BIN, "dcrun")
        return self.start_all([([dcrun, *arguments], by_hand(rank, world, port, per_host)) for rank in range(world)])

    def trained(self, started, communicator="tcp"):
        for job in started:
            result = job.finish(2 * jobs.LIMIT)
            self.assertEqual(result.code, 0, result.err)
        run = running.Run(*running.read_metrics(self.path("metrics.jsonl")), self.path("model.safetensors"))
        self.assertEqual(run.header["communicator"], communicator)
        return run


@rotation.taking_turns(3)
class TcpTest(TcpCase):
    def test_by_hand(self):
        for subject, world, zero in (("mlp", 3, 0), ("tiny-llama", 2, 3), ("tiny-llama bfloat16", 3, 2)):
            with self.subTest(subject, world=world, zero=zero):
                expected = bits_case.run_once(subject, world, zero)
                plan = self.compiled(subject, world, zero)
                self.assert_same(expected, self.trained(self.hosts(world, self.arguments(plan))), "by hand")

    def test_streams_of_their_own(self):
        """Collectives concurrent with compute, several communicators at once; poisoned memory."""
        chain = ",".join((bits_case.TO_SCHEDULE.format(3), "prefetch-gathers", "overlap-reductions", "layout-arenas"))
        expected = bits_case.run_once("tiny-llama", 3, 3)
        plan = self.compiled("tiny-llama", 3, chain)
        self.assert_same(expected, self.trained(self.hosts(3, self.arguments(plan, "--poison"))), "moved")

    def test_dcrun_starts_the_ranks(self):
        got = bits_case.run_new("mlp", 3, 2, options=("--comm", "tcp"))
        self.assertEqual(got.header["communicator"], "tcp")
        self.assert_same(bits_case.run_once("mlp", 3, 2), got, "--comm tcp")

    def test_one_agent(self):
        got = bits_case.run_new("mlp", 3, 2, options=("--comm", "tcp"), launcher="torchrun")
        self.assertEqual((got.header["launcher"], got.header["communicator"]), ("torchrun", "tcp"))
        self.assert_same(bits_case.run_once("mlp", 3, 2), got, "torchrun --comm tcp")

    def agents(self, *options):
        plan, port = self.compiled("mlp", 2, 3), free_port()
        dcrun = [os.path.join(running.BIN, "dcrun"), *self.arguments(plan)]
        filled = [option.format(port=port) for option in options]
        return self.start_all([([*agent(rank, 2, port, *filled), *dcrun], None) for rank in range(2)])

    def test_two_agents_of_torchrun(self):
        """Static rendezvous: the first agent's store is at MASTER_PORT."""
        self.assert_same(bits_case.run_once("mlp", 2, 3), self.trained(self.agents()), "two agents")

    def test_two_agents_that_find_each_other(self):
        """c10d rendezvous: the store that the ranks see is not the endpoint's."""
        options = ("--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:{port}", "--rdzv-id", "test")
        got = self.trained(self.agents(*options, "--local-addr", "127.0.0.1"))
        self.assert_same(bits_case.run_once("mlp", 2, 3), got, "two agents")

    def test_profile(self):
        """Every rank is started with the same words; only rank 0 writes."""
        model, port, world = running.archive("mlp"), free_port(), 3
        outputs = [self.path("prof.json"), *(["/nowhere/prof.json"] * (world - 1))]
        commands = [[os.path.join(running.BIN, "dcc"), "profile", model, "-o", output] for output in outputs]
        for job in self.start_all([(command, by_hand(rank, world, port)) for rank, command in enumerate(commands)]):
            result = job.finish(2 * jobs.LIMIT)
            self.assertEqual(result.code, 0, result.err)
        with open(self.path("prof.json")) as file:
            measured = json.load(file)
        machine = measured["machine"]
        self.assertEqual((machine["communicator"], machine["launcher"], machine["ranks"]), ("tcp", "torchrun", world))
        self.assertTrue(all(row["median_ns"] > 0 for row in measured["collectives"]))
        options = ("--profile", self.path("prof.json"))
        self.assertTrue(os.path.exists(running.compile_plan(model, world, 3, 1, *options)))

    def endless(self, world, *options):
        plan = self.compiled("mlp", world, 3)
        data = ["--weights", self.model, "--data", "synthetic", "--steps", "1000000"]
        started = self.hosts(world, [plan, *data, *options])
        started[0].await_steps(2)
        return started

    def test_a_killed_rank_is_named(self):
        for victim, number in ((0, signal.SIGKILL), (2, signal.SIGSEGV)):
            with self.subTest(victim=victim):
                started = self.endless(3)
                pid = started[victim].process.pid
                os.kill(pid, number)
                for rank in {0, 1, 2} - {victim}:
                    result = started[rank].finish()
                    self.assertEqual(result.code, 83, result.err)
                    self.assertIn(f"rank {victim} (process {pid}) died", result.of_rank(rank))

    def test_a_rank_that_stands_still_is_named_after_the_timeout(self):
        started = self.endless(3, "--timeout", "2")
        os.kill(started[1].process.pid, signal.SIGSTOP)
        results = [started[rank].finish() for rank in (0, 2)]
        for result in results:  # its own words, or those of the rank that gave up first
            self.assertRegex(result.last_line, r"waited 2\.0 s for rank 1, .*--timeout")
        self.assertIn(82, [result.code for result in results])
        self.assertLessEqual({result.code for result in results}, {82, 83})

    def test_a_stop_request_stops_all(self):
        started = self.endless(2, "--save", self.folder)
        os.kill(started[1].process.pid, signal.SIGTERM)
        for job in started:
            result = job.finish()
            self.assertEqual(result.code, 75, result.err)
            self.assertIn("; start again with --resume latest to go on", result.last_line)

    def test_ranks_that_do_not_come_are_named(self):
        plan = self.compiled("mlp", 3, 3)
        dcrun = [os.path.join(running.BIN, "dcrun"), *self.arguments(plan, "--timeout", "1")]
        port = free_port()
        for job in self.start_all([(dcrun, by_hand(rank, 3, port)) for rank in (0, 2)]):
            self.refused(job.finish(), 82, "missing: 1")


if __name__ == "__main__":
    unittest.main()
