"""The recipes' optimizers and schedules as torch has them, for the reference."""

import fnmatch
import math

import torch


class Optimizer:
    """torch.optim with torch's own schedulers. `masters`: {name: parameter}; `given`: a train.json."""

    def __init__(self, given, masters):
        self.masters = masters
        self.clip = given.get("clip_norm") or math.inf
        options = dict(given["optimizer"])
        kind = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}[options.pop("kind")]
        self.optimizer = kind(_groups(given.get("groups", []), masters), **options)
        self.scheduler = _scheduler(given.get("schedule", {"kind": "constant", "warmup": 0}), self.optimizer)

    def go_on(self, step, moments):
        """As after `step` steps that left `moments`, {name: {PyTorch's key: tensor}}."""
        counts = isinstance(self.optimizer, torch.optim.AdamW)
        for name, master in self.masters.items():
            if name in moments:
                self.optimizer.state[master] = {**({"step": torch.tensor(float(step))} if counts else {}), **{k: v.clone() for k, v in moments[name].items()}}
        self.optimizer.step()  # of no gradients: the scheduler wants one before its own
        for _ in range(step):
            self.scheduler.step()

    def step(self):
        """Clips, updates, goes on in the schedule. Returns the norm before clipping."""
        norm = torch.nn.utils.clip_grad_norm_(list(self.masters.values()), self.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.scheduler.step()
        return float(norm)


def _groups(given, masters):
    """A parameter belongs to the first group whose pattern matches its name."""
    groups = [{"params": [], **{k: v for k, v in group.items() if k != "match"}} for group in [*given, {}]]
    for name, master in masters.items():
        matching = [i for i, group in enumerate(given) if fnmatch.fnmatchcase(name, group["match"])]
        groups[matching[0] if matching else -1]["params"].append(master)
    return [group for group in groups if group["params"]]


def _scheduler(given, optimizer):
    """Step 1 of dcc is the first step of a decay, not the one before it: without warm-up torch's decay goes on by one at once."""
    library, warmup = torch.optim.lr_scheduler, given["warmup"]
    length = max(given.get("steps", 0) - warmup, 1)
    if given["kind"] == "linear":
        decay = library.LinearLR(optimizer, 1.0, given["final_lr_fraction"], length)
    elif given["kind"] == "cosine":
        decay = library.CosineAnnealingLR(optimizer, length)
    else:
        decay = library.ConstantLR(optimizer, 1.0)
    if warmup:
        rise = library.LinearLR(optimizer, 1 / warmup, 1.0, warmup - 1)
        return library.SequentialLR(optimizer, [rise, decay], [warmup - 1])
    optimizer.step()  # of no gradients: else the scheduler warns that it came first
    decay.step()
    return decay
