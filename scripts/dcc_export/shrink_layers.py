"""Which layers of a config stay: one of each kind, in their order, and always the last.

A layer's kind is what the config says about it: its entry in every list with one entry per layer, whether lists of layer numbers name
it, and whether it is among the first or last so many that are counted separately.
"""

import dataclasses

COUNTS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_decoder_layers", "decoder_layers", "num_blocks")
FIRST = ("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index", "num_hash_layers", "max_window_layers", "dense_layers")
LAST = ("num_kv_shared_layers",)
LEAST, MOST = 2, 6


@dataclasses.dataclass
class Chosen:
    """`count`: how many layers there were; `indices`: those that stay; `names`: the config's keys with that count."""

    count: int
    indices: list
    names: tuple


def choose(values, each=1):
    """The layers that stay of one config dict, or None if it has none. `each`: how many of a kind, where there are as many."""
    names = [n for n in COUNTS if _is_count(values.get(n))]
    count = values[names[0]] if names else _list_length(values)
    if not count:
        return None
    kinds = [tuple(_features(values, count, i)) for i in range(count)]
    indices = sorted({*(i for i, kind in enumerate(kinds) if kinds[:i].count(kind) < each), count - 1})
    least = max([LEAST, *(len(v) for k, v in values.items() if _repeated(k, v, count))])
    if len(indices) > MOST:
        indices = indices[: MOST - 1] + indices[-1:]
    for index in range(count):
        if len(indices) >= min(least, count):
            break
        if index not in indices:
            indices = sorted([*indices, index])
    return Chosen(count, indices, tuple(n for n in names if values[n] == count))


def reduced(key, value, chosen):
    """The new value of a key that speaks of layers; None if it does not."""
    if chosen is None:
        return None
    if key in chosen.names:
        return len(chosen.indices)
    if isinstance(value, int) and not isinstance(value, bool):
        if key in FIRST:
            return sum(i < value for i in chosen.indices)
        if key in LAST:
            return sum(i >= chosen.count - value for i in chosen.indices)
    if _per_layer(key, value, chosen.count):
        return [value[i] for i in chosen.indices]
    if _by_number(value):
        return {str(chosen.indices.index(int(k))): v for k, v in value.items() if int(k) in chosen.indices}
    if _layer_numbers(key, value, chosen.count):
        return tuple(chosen.indices.index(i) for i in value if i in chosen.indices)
    return None


def _features(values, count, index):
    for key, value in values.items():
        if _per_layer(key, value, count):
            yield repr(value[index])
        elif _layer_numbers(key, value, count):
            yield index in value
        elif _by_number(value):
            yield repr([v for k, v in value.items() if int(k) == index])
        elif key in FIRST and _is_count(value):
            yield index < value
        elif key in LAST and isinstance(value, int):
            yield index >= count - value


def _per_layer(key, value, count):
    return isinstance(value, (list, tuple)) and len(value) == count >= 3 and not _layer_numbers(key, value, count)


def _layer_numbers(key, value, count):
    named = any(part in key for part in ("idx", "ids", "indices", "indexes", "index_list", "only_layers", "attention_layers", "cross_attention_layers"))
    return (
        named
        and isinstance(value, (list, tuple))
        and bool(value)
        and all(type(v) is int for v in value)
        and list(value) == sorted(set(value))
        and value[-1] < count
    )


def _repeated(key, value, count):
    """Whether this is a list of kinds of layers that is repeated until there are enough."""
    return key.endswith("_types") and isinstance(value, (list, tuple)) and 1 < len(value) < count and all(isinstance(v, str) for v in value)


def _by_number(value):
    """Whether this is a dict from layer numbers to what holds for them."""
    return isinstance(value, dict) and bool(value) and all(str(k).isdigit() for k in value)


def _is_count(value):
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _list_length(values):
    """Configs without a count have a list with one name per layer."""
    for key in ("layers_block_type", "layer_types", "attn_layers"):
        if isinstance(values.get(key), list) and values[key]:
            return len(values[key])
    return 0
