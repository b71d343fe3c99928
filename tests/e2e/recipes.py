"""Ways to train: a train.json for dcc. recipe_optimizer.py makes the same of torch.optim and torch.optim.lr_scheduler for the reference.

The two share the numbers below and nothing else.
"""


def config(name, steps):
    """train.json of a recipe for a run of `steps` steps."""
    return {key: value(steps) if callable(value) else value for key, value in RECIPES[name].items()}


def _schedule(kind, warmup, final=0.0):
    return lambda steps: {"kind": kind, "warmup": warmup, "steps": steps, "final_lr_fraction": final}


_NO_DECAY = [{"match": "*bias", "weight_decay": 0.0, "lr": 3e-3}, {"match": "*b*", "weight_decay": 0.05}]  # a bias matches both

RECIPES = {
    "adamw": {"optimizer": {"kind": "adamw", "lr": 1e-3}, "clip_norm": 1.0},
    "adamw-groups-cosine": {
        "optimizer": {"kind": "adamw", "lr": 1e-2, "betas": [0.8, 0.95], "eps": 1e-6, "weight_decay": 0.2},
        "groups": _NO_DECAY,
        "clip_norm": 0.5,
        "schedule": _schedule("cosine", 5),
    },
    "adamw-linear-unclipped": {"optimizer": {"kind": "adamw", "lr": 5e-3, "weight_decay": 0.1}, "schedule": _schedule("linear", 0, 0.25)},
    "sgd": {"optimizer": {"kind": "sgd", "lr": 0.1, "weight_decay": 0.05}, "clip_norm": None},
    "sgd-momentum-linear": {
        "optimizer": {"kind": "sgd", "lr": 0.05, "momentum": 0.9, "weight_decay": 0.02},
        "clip_norm": 0.5,
        "schedule": _schedule("linear", 4, 0.1),
    },
    "sgd-nesterov-cosine": {
        "optimizer": {"kind": "sgd", "lr": 0.05, "momentum": 0.8, "nesterov": True, "weight_decay": 0.02},
        "groups": [{"match": "*bias", "weight_decay": 0.0}],
        "schedule": _schedule("cosine", 0),
    },
    "sgd-dampened-warmup": {
        "optimizer": {"kind": "sgd", "lr": 0.1, "momentum": 0.9, "dampening": 0.3},
        "clip_norm": 0.5,
        "groups": [{"match": "*weight", "lr": 0.03, "weight_decay": 0.1}],
        "schedule": _schedule("constant", 6),
    },
}
