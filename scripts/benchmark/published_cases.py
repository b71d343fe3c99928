"""How published.py plays the published columns: the chain of each, and what-ifs.

Not a program.
"""

import dataclasses

from published_plans import Factors, Job, by_inductor

FITTED = "ps"
FREE = ("compute", "link", "intercept")
PRESETS = {"llama-3-70b": "llama-3-70b", "mixtral-8x7b": "mixtral-8x7b-experts"}
REDUCED, OVERLAPPED = "bucket-reductions=1000000000", "overlap-reductions=1000000000"
P = f"schedule-fast-free,recompute,{REDUCED},prefetch-gathers-greedily,{OVERLAPPED}"
S = f"schedule-fast-free,recompute,{REDUCED},keep-resident-greedily,{OVERLAPPED}"
PS = f"schedule-fast-free,recompute,{REDUCED},prefetch-gathers-greedily,keep-resident-greedily,{OVERLAPPED}"
TRACE = f"recompute,{REDUCED},prefetch-gathers-by-trace,{OVERLAPPED}"
FSDP = "recompute,gather-by-block,gather-again-by-block,overlap-reductions=1"
# deepcompile-s with the prefetch of ZeRO-3's trace; ZeRO-3 without it: zero3-trace less one pass.
HIDING_S = f"schedule-fast-free,recompute,{REDUCED},prefetch-gathers-by-trace,keep-resident-greedily,{OVERLAPPED}"
NO_PREFETCH = f"normalize-graph,shard-parameters=3,insert-collectives,add-update,schedule,recompute,{REDUCED},{OVERLAPPED},layout-arenas"
CHAINS = {
    "zero3": "zero3-trace",
    "zero3_compiled": "zero3-trace",
    "fsdp": "fsdp-hf",
    "fsdp_compiled": "fsdp-hf",
    "p": by_inductor(P),
    "s": by_inductor(S),
    "ps": by_inductor(PS),
}
APART = {"p": "deepcompile-p", "s": "deepcompile-s", "ps": "deepcompile-ps"}
EAGER = ("zero3", "zero3_compiled", "fsdp", "fsdp_compiled")
RATIOS = (("p", "zero3"), ("s", "zero3"), ("ps", "zero3"), ("fsdp", "zero3"), ("p", "fsdp"), ("s", "fsdp"), ("ps", "fsdp"))

# Where the fit begins. Whether kernels and collectives slow each other is chosen by the errors of the fitted column (what-if "free overlap").
START = Factors(compute=1.2, link=0.6, intercept=0.4, contention=True)


@dataclasses.dataclass(frozen=True)
class Case:
    """How the published columns are played. `fit`: factors start there, and `free` are fitted on a column; None: the factors of the base."""

    name: str
    text: str
    chains: dict = dataclasses.field(default_factory=dict)  # in place of those in CHAINS, by column
    presets: dict = dataclasses.field(default_factory=dict)  # in place of those in PRESETS, by model
    fit: Factors | None = None
    free: tuple = FREE
    column: str = FITTED
    once: bool = False  # the intercept is for a step, not for each of its micro-batches
    accumulated: bool = True  # the cells of several micro-batches too
    apart: bool = False  # each gather that joins a group pays a latency, and all of these are exposed
    eager: bool = False  # eager columns take longer, by seconds a micro-batch that are fitted on ZeRO-3
    standing: str = ""  # "deepspeed" or "fsdp": peaks of its columns with what it has all the time, as the harness does
    host_bytes: int = 0  # what the host reads and writes for each parameter in addition, where it updates
    emptied: float = 0.0  # what emptying the allocator's cache adds, as a part of the step, where optimizer state is offloaded
    explains: str = "what-if"  # class of the reasons that it gives; "": it gives none, being there to compare

    def job(self, model, shape, column, accumulation=1):
        preset = self.presets.get(model, PRESETS[model])
        return Job(preset, shape, self.chains.get(column, CHAINS[column]), accumulation)

    def step(self, plans, job, factors):
        """Seconds; None where the budget is too small."""
        step = plans.step(job, factors)
        if step and self.once:
            step -= factors.intercept * (job.accumulation - 1)
        if step and self.apart:
            step += plans.gathers_moved(job) * plans.latency(factors)
        return step

    def peak(self, plans, job, column):
        """Bytes; None where the budget is too small."""
        framework = "fsdp" if column.startswith("fsdp") else "deepspeed"
        return plans.standing_peak(job, framework) if framework == self.standing else plans.peak(job)


BASE = Case("base", "", fit=START)
WHAT_IFS = (
    Case("S hides", "gathers of S are prefetched as ZeRO-3's trace does it", chains={"s": by_inductor(HIDING_S)}),
    Case("no prefetch", "ZeRO-3's trace prefetches nothing", chains={"zero3": NO_PREFETCH, "zero3_compiled": NO_PREFETCH}),
    Case("two gathers", "FSDP gathers a block twice, as FSDP2", chains={"fsdp": "fsdp", "fsdp_compiled": "fsdp"}),
    Case(
        "compiled kernels",
        "Inductor makes the element-wise kernels of the compiled baselines too",
        chains={"zero3_compiled": by_inductor(TRACE), "fsdp_compiled": by_inductor(FSDP)},
    ),
    Case("fused experts", "an expert layer is two tensors, not 24", presets={"mixtral-8x7b": "mixtral-8x7b"}, fit=START, accumulated=False),
    Case(
        "attention",
        "attention is slower than matrix products, by a fourth fitted factor",
        fit=dataclasses.replace(START, attention=2.0),
        free=(*FREE, "attention"),
    ),
    Case(
        "standing buffers",
        "DeepSpeed's partition of gradients and bucket of reductions are there all the time, as are the logits that the harness holds",
        standing="deepspeed",
    ),
    Case(
        "shards in f32 only", "FSDP has no shards in bf16 but while it gathers them; the logits that the harness holds are there all the time", standing="fsdp"
    ),
    Case(
        "overflow check",
        "before the update the host looks for infinities and for NaN in its bf16 gradients, writing and reading a mask of bytes each",
        host_bytes=8,
    ),
    Case("emptied cache", "each step empties the allocator's cache, which its authors say is 28 % of a step (DeepSpeed 227a60c and edaa722)", emptied=0.28),
    Case("eager host", "eager columns take longer by seconds a micro-batch, fitted on ZeRO-3: what the host does", eager=True, explains="out of scope"),
    Case("groups apart", "gathers of a fused group pay their latencies one by one, exposed: an upper bound", apart=True, explains=""),
    Case("intercept once", "the intercept is once a step", once=True, explains=""),
    Case("kernels apart", "element-wise kernels of P, S and PS are PyTorch's, one by one", chains=APART, fit=START, explains=""),
    Case("free overlap", "kernels and collectives do not slow each other", fit=dataclasses.replace(START, contention=False), explains=""),
    Case("on ZeRO-3", "fitted on the ZeRO-3 column", fit=START, column="zero3", explains=""),
    Case("no intercept", "two factors explain all time", fit=dataclasses.replace(START, intercept=0.0), free=("compute", "link"), explains=""),
)
