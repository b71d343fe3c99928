"""The published runs as cells: what was published, and what a case makes of it.

Not a program.
"""

import dataclasses

from published_cases import EAGER, PRESETS, RATIOS
from published_fit import fit
from published_plans import Job

TOLERANCE = 0.10
ACCUMULATED = (1, 1024)  # the shape of all runs with several micro-batches


@dataclasses.dataclass
class Cell:
    kind: str  # throughput, ratio, accumulation, peak, offload
    column: str
    published: float
    ours: float
    seconds: float = 0.0  # published less ours, of a micro-batch
    parts: tuple = ()  # of a ratio: the keys of what is divided by what
    between: float = 0.0  # what the same column's figures on both sides of it say; 0: there are none

    @property
    def off(self):
        return self.ours / self.published - 1

    @property
    def good(self):
        return abs(self.off) <= TOLERANCE

    @property
    def off_between(self):
        return self.ours / self.between - 1


class Runs:
    """One machine's published runs of one model."""

    def __init__(self, name, data, model):
        self.name, self.model = name, model
        runs = data[name]["models"][model]
        columns = data["columns"][2:]
        by_shape = lambda rows: {(row[0], row[1]): dict(zip(columns, row[2:])) for row in rows}
        if "seconds" in runs:
            self.seconds = by_shape(runs["seconds"])
        else:
            tokens = by_shape(runs["throughput"])
            self.seconds = {shape: {c: shape[0] * shape[1] / rate for c, rate in row.items()} for shape, row in tokens.items()}
        self.peaks = by_shape(runs.get("peak_bytes", []))
        names = data[name].get("accumulation_columns", [])
        self.accumulation = [dict(zip(names, row)) for row in runs.get("accumulation", []) if row[0] > 1]

    def fit(self, plans, case):
        jobs = [(case.job(self.model, shape, case.column), row[case.column]) for shape, row in self.seconds.items()]
        return fit(plans, [job for job in jobs if plans.report(job[0])], case.fit, case.free)

    def eager_seconds(self, plans, case, factors):
        """Least squares of the relative errors of ZeRO-3 without accumulation; at least 0."""
        sums = [0.0, 0.0]
        for shape, row in self.seconds.items():
            step, wanted = case.step(plans, case.job(self.model, shape, "zero3"), factors), row["zero3"]
            if step:
                sums[0] += (wanted - step) / wanted**2
                sums[1] += 1 / wanted**2
        return max(sums[0] / sums[1], 0.0)

    def cells(self, plans, case, factors):
        """{(shape, what): Cell}"""
        found = {}
        eager = self.eager_seconds(plans, case, factors) if case.eager else 0.0
        for shape, row in self.seconds.items():
            jobs = {column: case.job(self.model, shape, column) for column in row}
            steps = {column: self._step(plans, case, job, factors, column, eager) for column, job in jobs.items()}
            tokens = shape[0] * shape[1]
            for column, wanted in row.items():
                if steps[column]:
                    found[shape, column] = Cell("throughput", column, tokens / wanted, tokens / steps[column], wanted - steps[column])
                if self.peaks:
                    found[shape, f"peak of {column}"] = Cell("peak", column, self.peaks[shape][column] / 2**30, case.peak(plans, jobs[column], column) / 2**30)
            for a, b in RATIOS:
                if steps[a] and steps[b]:
                    found[shape, f"{a} / {b}"] = Cell("ratio", a, row[b] / row[a], steps[b] / steps[a], parts=((shape, a), (shape, b)))
        for row in self.accumulation if case.accumulated else ():
            found.update(self._accumulated(plans, case, factors, row, eager))
        return found

    @staticmethod
    def _step(plans, case, job, factors, column, eager):
        step = case.step(plans, job, factors)
        return step and step + (eager * job.accumulation if column in EAGER else 0.0)

    def _accumulated(self, plans, case, factors, row, eager):
        shape, count, found = ACCUMULATED, row["micro_batches"], {}
        what = lambda column: f"{column}, {count} micro-batches"
        rates = {}
        for column in ("zero3", "zero3_compiled", "ps"):
            step = self._step(plans, case, case.job(self.model, shape, column, count), factors, column, eager)
            rates[column] = count * shape[0] * shape[1] / step
            lacking = shape[0] * shape[1] / row[column] - step / count
            between = self._between(column, count)
            found[shape, what(column)] = Cell("accumulation", column, row[column], rates[column], lacking, between=between)
        parts = ((shape, what("ps")), (shape, what("zero3")))
        gain = Cell("accumulation", "ps", row["ps"] / row["zero3"], rates["ps"] / rates["zero3"], parts=parts)
        found[shape, f"ps / zero3, {count} micro-batches"] = gain
        return found

    def _between(self, column, count):
        """Tokens per second by the column's published steps of half and of twice as many micro-batches, on a line."""
        tokens = ACCUMULATED[0] * ACCUMULATED[1]
        steps = {row["micro_batches"]: row["micro_batches"] * tokens / row[column] for row in self.accumulation}
        steps[1] = self.seconds[ACCUMULATED][column]
        if count // 2 not in steps or 2 * count not in steps:
            return 0.0
        return count * tokens / (steps[count // 2] + (steps[2 * count] - steps[count // 2]) / 3)


class Offloading:
    """Figure 4: optimizer state offloaded on half of the ranks, and DeepSpeed's update on the host."""

    CHAINS = {"zero_offload": "zero-offload", "zero_offload_compiled": "zero-offload", "offload_optimizer": "deepcompile-offload-optimizer"}

    def __init__(self, data):
        self.name, self.model = "offload", data["model"]
        self.ranks, self.plot = data["ranks"], data["plot"]
        columns = data["columns"][2:]
        by_column = lambda row: {column: self.flops(row[0], row[1]) / (rate * 1e12) for column, rate in zip(columns, row[2:])}
        self.seconds = {(row[0], row[1]): by_column(row) for row in data["tflops"]}

    def flops(self, batch, seq):
        """As benchmarks/deepcompile/plot.py counts them: keys and values of grouped heads not at all, a forward pass four times."""
        hidden, layers = self.plot["hidden"], self.plot["layers"]
        layer = 2 * hidden * hidden + 2 * hidden * seq + 3 * self.plot["intermediate"] * hidden
        return 4 * 2 * batch * seq * (layers * layer + self.plot["vocabulary"] * hidden)

    def cells(self, plans, case, factors):
        found = {}
        for shape, row in self.seconds.items():
            jobs = {column: Job(PRESETS[self.model], shape, chain, ranks=self.ranks) for column, chain in self.CHAINS.items()}
            steps = {column: self._step(plans, case, column, job, factors) for column, job in jobs.items()}
            tokens = shape[0] * shape[1]
            what = lambda column: f"{column}, {self.ranks} ranks"
            for column, wanted in row.items():
                if steps[column]:
                    found[shape, what(column)] = Cell("offload", column, tokens / wanted, tokens / steps[column], wanted - steps[column])
            if steps["zero_offload"] and steps["offload_optimizer"]:
                gain, ours = (times["zero_offload"] / times["offload_optimizer"] for times in (row, steps))
                parts = ((shape, what("offload_optimizer")), (shape, what("zero_offload")))
                found[shape, f"offload_optimizer / zero_offload, {self.ranks} ranks"] = Cell("ratio", "offload_optimizer", gain, ours, parts=parts)
        return found

    @staticmethod
    def _step(plans, case, column, job, factors):
        """The host updates in one chain only, and state is copied in the other only."""
        step = case.step(plans, job, factors)
        if column == "offload_optimizer":
            return step and step * (1 + case.emptied)
        return step and step + case.host_bytes * plans.parameters(job) / job.ranks / plans.base["rates"]["host_memory_bytes_per_s"]
