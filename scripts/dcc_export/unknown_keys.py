"""Keys of a transformers config that its class does not know: transformers keeps them without a word, and they have no effect."""

import difflib

# What every config file may carry, whatever its class.
COMMON = {"transformers_version", "torch_dtype", "dtype", "architectures", "model_type", "auto_map", "_name_or_path"}


def notes(config, values):
    """A sentence for each key of the dict `values` that misspells a key of `config`'s class.

    Other unknown keys are not mentioned: published configs carry many that only their authors' code reads.
    """
    known = set(type(config)().to_dict()) | set(type(config).attribute_map) | COMMON
    for key in values:
        if key in known:
            continue
        close = difflib.get_close_matches(key, known, n=1, cutoff=0.85)
        if close and close[0] not in values:
            yield f"{type(config).__name__} does not know the key {key!r}, so it has no effect; did you mean {close[0]!r}?"
