"""Makes a model small by its config alone: the same family and the same kinds of layers, a few thousand numbers each.

A config is a tree of dicts. In each of them integers are read by what their name says (`shrink_kinds.py`): widths are divided by one factor,
numbers of heads by another and head widths by the quotient, so that products such as heads x head width = width survive. Layers are
picked so that each kind of layer stays (`shrink_layers.py`). What does not build that way is tried by the next recipe.
"""

import dataclasses
import math

from . import shrink_layers as layers
from .shrink_kinds import kind_of

WIDTHS = ("hidden_size", "d_model", "n_embd", "hidden_dim", "embedding_size", "model_dim", "dim", "d_latents", "embed_dim")
HEADS = (
    "num_attention_heads",
    "n_head",
    "num_heads",
    "n_heads",
    "encoder_attention_heads",
    "decoder_attention_heads",
    "num_encoder_attention_heads",
    "num_query_groups",
)
DROPPED = (
    "transformers_version",
    "_name_or_path",
    "id2label",
    "label2id",
    "_attn_implementation",
    "output_attentions",
    "output_hidden_states",
    "return_dict",
    "stage_names",
    "out_features",
    "out_indices",
)


@dataclasses.dataclass(frozen=True)
class Recipe:
    """What a small model looks like. `width`: of the residual stream. `window`: what attention sees; shorter than a sequence.
    `ids`: special tokens outside the vocabulary move into it. `fill`: counts that the config leaves open get a value. `stages`: widths
    in lists, one per stage, are divided by this. `together`: one factor for the whole tree, that of its widest dict.
    `each`: layers of each kind."""

    name: str
    width: int = 64
    heads: int = 4
    vocabulary: int = 256
    positions: int = 64
    window: int = 8
    image: int = 32
    patch: int = 8
    experts: int = 4
    ids: bool = False
    fill: bool = False
    stages: int = 4
    together: bool = False
    each: int = 1


RECIPES = (
    Recipe("plain"),
    Recipe("filled", fill=True),
    Recipe("ids", ids=True, fill=True),
    Recipe("together", together=True),
    Recipe("eight heads", heads=8),
    Recipe("wide", width=128),
    Recipe("wide, eight heads", width=128, heads=8, ids=True, fill=True),
    Recipe("larger picture", image=64, patch=16, stages=2),
    Recipe("whole picture", image=224, patch=16, stages=4),
    Recipe("two of each kind", each=2),
    Recipe("as wide", width=1 << 20, stages=1, image=64),
    Recipe("wide window", width=128, window=16, positions=512, ids=True),
    Recipe("widest", width=256, heads=8, positions=512, window=16, ids=True, stages=1, image=64),
)


@dataclasses.dataclass
class _Scale:
    """How one dict of the tree shrinks. Factors may be fractions; they are exact where the config's own numbers allow it."""

    width: float
    heads: float

    @property
    def head_width(self):
        return self.width / self.heads


def shrink(values, recipe=RECIPES[0]):
    """values: a whole config as a dict, defaults included (`config.to_dict()`). Returns a smaller one."""
    return _Shrinker(recipe).whole(values)


class _Shrinker:
    def __init__(self, recipe):
        self.recipe = recipe
        self.moved_ids = 0
        self.fixed = None

    def whole(self, values):
        if self.recipe.together:
            scales = [s for s in map(self._scale, _dicts(values)) if s]
            self.fixed = max(scales, key=lambda s: s.width, default=None)
        return self.tree(values, _Scale(16.0, 4.0))

    def tree(self, values, outer):
        values = {k: v for k, v in values.items() if k not in DROPPED}
        scale = self.fixed or self._scale(values) or outer
        chosen = layers.choose(values, self.recipe.each)
        result = {}
        for key, value in values.items():
            kept = layers.reduced(key, value, chosen)
            if kept is None:
                result[key] = self._value(key, value, scale)
            elif isinstance(kept, dict):
                result[key] = {number: self._value(key, v, scale) for number, v in kept.items()}
            else:
                result[key] = self._each(key, kept, scale) if isinstance(kept, list) else kept
        return result

    def _scale(self, values):
        width = _first(values, WIDTHS)
        if width is None or width < 16:
            return None
        heads = _first(values, HEADS) or 0
        wanted = self.recipe.heads
        kv = values.get("num_key_value_heads")
        if isinstance(kv, int) and 0 < kv < heads and heads // kv == 4:
            wanted = max(wanted, 8)  # two groups of four
        if heads < wanted:
            wanted = max(heads, 1)
        return _Scale(max(width / self.recipe.width, 1.0), max(heads / wanted, 1.0))

    def _value(self, key, value, scale):
        if value is None:
            return self._filling(key) if self.recipe.fill else None
        if isinstance(value, (bool, str)):
            return value
        if isinstance(value, dict):
            return self.tree(value, scale)
        if isinstance(value, (list, tuple)):
            if kind_of(key) == "depth":
                return [min(v, 2) if isinstance(v, int) and not isinstance(v, bool) else v for v in value]
            if kind_of(key) in ("width", "head width", "plain") and _by_stage(value):
                return self._stages(value) if kind_of(key) == "width" or "channels" in key else list(value)
            return self._each(key, value, scale)
        if isinstance(value, float) and key.endswith("_coefficient"):
            return min(value, 1.0)
        if isinstance(value, float):
            return 0.0 if value > 0 and ("drop" in key or "jitter" in key) and "shared" not in key else value
        return self._integer(key, value, scale)

    def _each(self, key, values, scale):
        """Heads by stage, without a number for all, shrink by what they have in common: small widths are multiples of few heads only."""
        if kind_of(key) == "heads" and scale.heads == 1 and _by_stage(values):
            return [v // math.gcd(*values) for v in values]
        return [self._value(key, v, scale) for v in values]

    def _filling(self, key):
        recipe = self.recipe
        return {
            "heads": recipe.heads,
            "head width": recipe.width // recipe.heads,
            "experts": 2 * recipe.experts,
            "choices": 2,
            "expert groups": 1,
            "chosen groups": 1,
            "shared": 1,
        }.get(kind_of(key))

    def _stages(self, widths):
        return [max(8, v // self.recipe.stages) if isinstance(v, int) and v >= 16 else v for v in widths]

    def _integer(self, key, value, scale):
        recipe, kind = self.recipe, kind_of(key)
        if value <= 0:
            return value
        if kind == "own id":
            return self._id(value)
        if kind == "id":
            return self._id(value) if recipe.ids else value
        if kind == "heads":
            return max(1, round(value / scale.heads))
        if kind == "head width":
            return value if value < 8 else _even(value / scale.head_width, 4)
        if kind == "width":
            return value if value < 16 else _width(value, scale.width)
        limit = {
            "vocabulary": recipe.vocabulary,
            "depth": 2,
            "experts": 2 * recipe.experts,
            "choices": 2,
            "expert groups": 2,
            "chosen groups": 1,
            "window": recipe.window,
            "interval": 2,
            "offset": 1,
            "positions": recipe.positions,
            "image": recipe.image,
            "patch": recipe.patch,
            "state": 16,
            "shared": 1,
            "factor": 4,
        }.get(kind)
        return value if limit is None else min(value, limit)

    def _id(self, value):
        if value < self.recipe.vocabulary:
            return value
        self.moved_ids += 1
        return self.recipe.vocabulary - self.moved_ids


def _dicts(values):
    """A tree's dicts, the outermost first."""
    yield values
    for value in values.values():
        if isinstance(value, dict):
            yield from _dicts(value)


def _first(values, names):
    for name in names:
        value = values.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


def _by_stage(value):
    return 3 <= len(value) <= 13 and all(isinstance(v, int) for v in value)


def _width(value, factor):
    exact = value / factor
    return int(exact) if exact == int(exact) and exact >= 4 else max(8, round(exact / 8) * 8)


def _even(exact, least):
    return max(least, 2 * round(exact / 2))
