"""What transformers and torch.optim alone make of a family: its shrunk model, trained as two ranks would.

Nothing of dcc is imported here. The model has transformers' own attention and experts; its eager attention where the config asks for
soft-capped scores, which transformers' fused attention leaves out. Its weights are moved away from their
initialisation, which is so small that softmax, soft-capping and gates would hardly matter.
"""

import collections
import dataclasses
import json

import torch

from .catalog import AFTER, BEFORE, CAUSAL_LM, IMAGES, MASKED_LM, SEQ2SEQ_LM
from dcc_export.shrink import RECIPES, shrink

WORLD, SEQ, STEPS = 2, 32, 3
PICTURE = 32  # pixels of a side where the config names none
MOST_PARAMETERS = 8_000_000  # more is not a shrunk model
LIVELINESS = (1.0, 0.3, 0.0)  # how far weights are moved; less where a family does not bear more
CHAOS = 1e-3  # a family whose losses change by more when rows are summed in another order cannot be compared
NUDGES = (3, 4, 5)  # seeds of runs whose start weights are one rounding error away
GRADIENT_CHAOS = 1e-2  # nor one whose gradients together change by more then


class CannotShrink(Exception):
    """No recipe gives a config that transformers builds a small model from."""


class CannotTrain(Exception):
    """A small model was built, but PyTorch does not train it."""


@dataclasses.dataclass
class Stock:
    """A trained small model. `values`: its config. `start`: weights before step 1; `data`: {name: [samples, ...]}.

    `losses`: one per step; `gradients`: of step 1, by parameter, averaged over ranks; `loss_spreads`: by step the largest relative difference of the
    loss when rows and ranks are summed in reverse, or when the start weights are one rounding error away; `gradient_spread`: by parameter the norm
    of a gradient's largest difference.
    """

    values: dict
    recipe: str
    parameters: int
    liveliness: float
    start: dict
    data: dict
    losses: list
    gradients: dict
    loss_spreads: list
    gradient_spread: dict


def train_small(family):
    """Tries recipes until PyTorch trains one; raises CannotShrink or CannotTrain with the last reason of the furthest stage."""
    cannot_build, cannot_train = None, None
    for recipe in RECIPES:
        try:
            values = small_values(family, recipe)
            build(family, values)
        except Exception as error:
            cannot_build = cannot_build or f"{recipe.name}: {_sentence(error)}"
            continue
        for liveliness in LIVELINESS:
            try:
                return _train(family, values, recipe, liveliness)
            except Exception as error:
                cannot_train = cannot_train or f"{recipe.name}: {_sentence(error)}"
    if cannot_train:
        raise CannotTrain(cannot_train)
    raise CannotShrink(cannot_build)


def small_values(family, recipe):
    """The shrunk config as a dict that can be written as JSON."""
    from transformers.models.auto import modeling_auto
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    config = CONFIG_MAPPING[family.kind](**BEFORE.get(family.kind, {}))
    values = json.loads(json.dumps(shrink(config.to_dict(), recipe), default=str))
    values.update(AFTER.get(family.kind, {}))
    values.update(model_type=family.kind, use_cache=False)
    names = getattr(modeling_auto, family.task.table)[family.kind]
    values["architectures"] = [names if isinstance(names, str) else names[0]]
    if family.task is CAUSAL_LM and "is_decoder" in values:
        values["is_decoder"] = True
    if family.task is SEQ2SEQ_LM and values.get("decoder_start_token_id") is None:
        values["decoder_start_token_id"] = values.get("pad_token_id") or 0
    return values


def build(family, values, seed=0):
    """The stock model in fp32, in training mode; refuses one that is not small."""
    import transformers

    rest = {k: v for k, v in values.items() if k != "model_type"}
    config = transformers.AutoConfig.for_model(family.kind, **rest)
    auto = getattr(transformers, family.task.auto)
    with torch.device("meta"):
        size = sum(p.numel() for p in auto.from_config(config, dtype=torch.float32).parameters())
    if size > MOST_PARAMETERS:
        raise CannotShrink(f"still {size} parameters")
    torch.manual_seed(seed)
    capped = getattr(config.get_text_config(), "attn_logit_softcapping", None) is not None
    return auto.from_config(config, dtype=torch.float32, **({"attn_implementation": "eager"} if capped else {})).train()


def _train(family, values, recipe, liveliness):
    torch.manual_seed(0)
    model = build(family, values)
    enliven(model, liveliness)
    data = draw(family, model)
    start = {n: t.detach().clone() for n, t in _state(model).items()}
    batch = family.task.batch
    given = _run(model, data, batch, reverse=False)
    again = _run(_restored(model, start), data, batch, reverse=False)
    if again.losses != given.losses:
        raise ValueError("two equal runs give different losses, so the model itself draws random numbers")
    reverse = _run(_restored(model, start), data, batch, reverse=True)
    change = max(_loss_distances(reverse, given))
    if not change <= CHAOS:
        raise ValueError(f"its losses change by {change:.1g} when rows are summed in another order")
    others = [reverse, *(_run(_nudged(model, start, seed), data, batch, reverse=False) for seed in NUDGES)]
    spreads = [max(step) for step in zip(*(_loss_distances(run, given) for run in others), strict=True)]
    apart = {n: max(float((run.gradients[n] - g).norm()) for run in others) for n, g in given.gradients.items()}
    change = _norm(apart.values()) / _norm(float(g.norm()) for g in given.gradients.values())
    if not change <= GRADIENT_CHAOS:
        raise ValueError(f"its gradients change by {change:.1g} when its weights are one rounding error away")
    size = sum(p.numel() for p in model.parameters())
    return Stock(values, recipe.name, size, liveliness, start, data, given.losses, given.gradients, spreads, apart)


def enliven(model, liveliness, seed=2):
    """Adds noise: to matrices so that they keep a vector's length, to vectors a tenth."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            fan_in = max(parameter[0].numel(), 1) if parameter.dim() > 1 else 100
            parameter.add_(noise, alpha=liveliness * fan_in**-0.5)


def draw(family, model, seed=1):
    """Random inputs: {name: [samples, ...]}. Labels of language models are the tokens, which the model shifts."""
    generator = torch.Generator().manual_seed(seed)
    samples = WORLD * family.task.batch * STEPS
    if family.task is IMAGES:
        size = getattr(model.config, "image_size", PICTURE)
        height, width = size if isinstance(size, (list, tuple)) else (size, size)
        pixels = torch.randn(samples, getattr(model.config, "num_channels", 3), height, width, generator=generator).clamp(-1, 1)
        return {"pixel_values": pixels, "labels": torch.randint(0, model.config.num_labels, (samples,), generator=generator)}
    vocabulary = min(model.get_input_embeddings().num_embeddings, model.config.get_text_config().vocab_size)
    tokens = torch.randint(0, vocabulary, (samples, SEQ), generator=generator)
    if family.task is not MASKED_LM:
        return {"input_ids": tokens, "labels": tokens.clone()}
    lengths = torch.randint(SEQ // 2, SEQ + 1, (samples, 1), generator=generator)
    return {"input_ids": tokens, "attention_mask": (torch.arange(SEQ) < lengths).to(torch.int64), "labels": tokens.clone()}


_Run = collections.namedtuple("_Run", "losses gradients")


def _run(model, data, batch, reverse):
    """Three steps of AdamW with PyTorch's defaults; a step's gradient is the mean over ranks. Row r of rank k in step s is the sample
    (s x world + k) x batch + r."""
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
    losses, first = [], {}
    for step in range(STEPS):
        optimizer.zero_grad()
        total = 0.0
        for rank in sorted(range(WORLD), reverse=reverse):
            begin = (step * WORLD + rank) * batch
            rows = {n: t[begin : begin + batch] for n, t in data.items()}
            rows = {n: t.flip(0) for n, t in rows.items()} if reverse else rows
            loss = model(**rows).loss
            (loss / WORLD).backward()
            total += float(loss.detach()) / WORLD
        if not total - total == 0:
            raise ValueError(f"the loss of step {step + 1} is {total}")
        if step == 0:
            first = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
            if not first:
                raise ValueError("no parameter has a gradient")
        losses.append(total)
        optimizer.step()
    return _Run(losses, first)


def _state(model):
    """Parameters and saved buffers under their first names."""
    kept = dict(model.named_parameters())
    saved = model.state_dict()
    kept.update({n: b for n, b in model.named_buffers() if n in saved})
    return kept


def _nudged(model, start, seed):
    """The model with its start weights one rounding error away, up or down at random.

    Rows in reverse leave the arithmetic within a row alone. Where a model amplifies its rounding (norms of nearly nothing, recurrences, the sign of
    a gradient near zero in AdamW's first step), this shows by how much.
    """
    generator = torch.Generator().manual_seed(seed)
    _restored(model, start)
    with torch.no_grad():
        for parameter in model.parameters():
            up = torch.randint(0, 2, parameter.shape, generator=generator).bool()
            parameter.copy_(torch.nextafter(parameter, torch.where(up, torch.inf, -torch.inf)))
    return model


def _loss_distances(run, given):
    return [_relative(a, b) for a, b in zip(run.losses, given.losses, strict=True)]


def comparable_steps(found):
    """How many of a Stock's first steps do not amplify rounding so much that losses behind them say nothing; step 1 has no update yet."""
    return next((step for step, spread in enumerate(found.loss_spreads) if step > 0 and spread > CHAOS), STEPS)


def _norm(parts):
    return sum(part * part for part in parts) ** 0.5


def _restored(model, start):
    with torch.no_grad():
        for name, tensor in _state(model).items():
            tensor.copy_(start[name])
    return model


def _relative(a, b):
    return abs(a - b) / max(abs(b), 1e-30)


def _sentence(error):
    text = " ".join(str(error).split())[:240]
    return text if isinstance(error, (CannotShrink, CannotTrain, ValueError)) else f"{type(error).__name__}: {text}"
