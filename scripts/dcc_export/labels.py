"""Which tokens the labels are: those at the same positions, or the next ones.

A model that shifts its labels itself wants the same window as the tokens. A model whose caller
shifts the targets wants the window one token later: with the same window it learns to copy. The
module's behaviour tells them apart, because of all labels the first one says most:

- A model that shifts ignores it: position 0 has no token before it.            -> same
- Else, a causal model predicts it from token 0 alone: it must be token 1.       -> next
- Else, position 0 sees later tokens too: the label is the token itself, masked. -> same

"Sees" means that the share of label 0 in the loss, or in the gradient, changes with the tokens.
That share is the difference of two runs that differ in label 0 alone, so that all other terms of
the loss (other labels, a router's auxiliary loss) cancel.
"""

import copy

import torch

from .errors import ExportError
from .inputs import draw
from .places import Places, copies

IGNORED = -100  # what cross_entropy leaves out by default
UNCHANGED = 1e-5  # relative distance of shares; noise of float32 is below
CHANGED = 1e-4


def describe_labels(step, examples, descriptions, can_run, seed):
    """Sets "labels" ("same" or "next") of every label input that a token file could fill.

    Inputs that have it keep it. Raises ExportError, with the roles= to give, where the answer is
    unknown: the module cannot run here, fails, or its loss hardly depends on the first label.
    """
    for index, description in enumerate(descriptions):
        if description["role"] != "labels":
            continue
        shape = examples[index].shape
        tokens = [i for i, d in enumerate(descriptions) if d["role"] == "tokens" and examples[i].shape == shape]
        if "labels" in description or not tokens:
            continue
        description["labels"] = _find_out(step, examples, descriptions, index, tokens, can_run, seed)


def describe_answers(descriptions):
    """For people: "labels are the next tokens". Empty if no input has "labels"."""
    words = {"same": "the same tokens (the model shifts or masks)", "next": "the next tokens"}
    return ", ".join(f"{d['name']} are {words[d['labels']]}" for d in descriptions if "labels" in d)


def _find_out(step, examples, descriptions, index, tokens, can_run, seed):
    name = descriptions[index]["name"]
    if not can_run:
        raise _unknown(name, "the module cannot run here")
    if examples[index].shape[-1] < 2 or descriptions[index]["high"] - descriptions[index]["low"] < 2:
        raise _unknown(name, "the example has fewer than two positions or classes")
    # In float32 first: rounding hides little there. A forward that names its types runs in them only.
    for widened in (True, False):
        try:
            with torch.random.fork_rng(devices=[]):
                return _Probe(step, examples, descriptions, index, seed, widened).answer(tokens)
        except Undecided as undecided:
            raise _unknown(name, str(undecided)) from None
        except (IndexError, RuntimeError, ValueError, TypeError) as error:
            if not widened:
                first = (str(error).strip().splitlines() or [type(error).__name__])[0]
                raise _unknown(name, f"the module fails on drawn inputs: {first}") from error
    raise AssertionError("the last type raises or returns")


class Undecided(Exception):
    """Why the behaviour of a module does not tell."""


def _unknown(name, reason):
    return ExportError(
        f"cannot tell which tokens the labels {name!r} are: {reason}; say it with "
        f'roles={{"{name}": {{"role": "labels", "labels": "next"}}}} (--labels next) if the caller shifts the targets '
        '(label i is token i + 1), or "same" if the model shifts them, or masks tokens, itself'
    )


class _Probe:
    """Runs the module on drawn samples that differ in chosen tokens and in label 0."""

    def __init__(self, step, examples, descriptions, index, seed, widened):
        reduced = any(p.dtype in (torch.bfloat16, torch.float16) for p in step.parameters())
        self.step = copy.deepcopy(step).float() if reduced and widened else step
        self.places = Places(self.step)
        self.index, self.seed = index, seed
        self.generator = torch.Generator().manual_seed(seed + 2)
        self.description = descriptions[index]
        self.examples, self.descriptions = list(examples), descriptions
        self.widened = widened
        self.trainable = [p for p in self.step.parameters() if p.requires_grad]
        self.one, self.other = self._two_classes()

    def answer(self, tokens):
        sample = list(self.examples)
        if self.widened and any(e.dtype in (torch.bfloat16, torch.float16) for e in sample):
            sample = [e.float() if e.is_floating_point() else e for e in sample]
        for i in [*tokens, self.index]:
            sample[i] = draw(self.descriptions[i], sample[i], self.generator)
        if not self._uses_first_label(sample):
            return "same"
        sample[self.index] = self._all_ignored(sample)
        before = self._share(sample)
        sees_later, sees_first = False, False
        for i in tokens:
            later = _distance(before, self._share(self._redrawn(sample, i, slice(1, None))))
            first = _distance(before, self._share(self._redrawn(sample, i, slice(0, 1))))
            if later < UNCHANGED and first > CHANGED:
                return "next"
            sees_later, sees_first = sees_later or later > CHANGED, sees_first or first > CHANGED
        if sees_later and sees_first:
            return "same"
        if sees_first:
            raise Undecided(
                "the share of the first label depends on the first token, and so little on later ones that the model is "
                "neither plainly causal nor plainly bidirectional"
            )
        raise Undecided("the loss hardly depends on the first label and its tokens")

    def _two_classes(self):
        """Two labels that differ, drawn so that no special class is met by rule."""
        low, high = int(self.description["low"]), int(self.description["high"])
        one, other = torch.randperm(high - low, generator=self.generator)[:2].tolist()
        return low + one, low + other

    def _uses_first_label(self, sample):
        classes = (self.one, self.one, self.other)
        one, again, other = (self._run(self._with_label(sample, c)) for c in classes)
        return _distance(one, other) > 10 * _distance(one, again)

    def _all_ignored(self, sample):
        """Labels of which only the first counts, where the module's loss can leave some out."""
        ignored = torch.full_like(sample[self.index], IGNORED)
        try:
            loss, _ = self._run(self._with_label([*sample[: self.index], ignored, *sample[self.index + 1 :]], self.one))
        except (IndexError, RuntimeError):
            return sample[self.index]
        return ignored if torch.isfinite(loss) else sample[self.index]

    def _with_label(self, sample, label):
        changed = list(sample)
        changed[self.index] = sample[self.index].clone()
        changed[self.index][..., 0] = label
        return changed

    def _redrawn(self, sample, i, positions):
        changed = list(sample)
        changed[i] = sample[i].clone()
        description = self.descriptions[i]
        low, high = int(description["low"]), int(description["high"])
        step = torch.randint(1, max(high - low, 2), sample[i].shape, generator=self.generator)
        moved = (sample[i] - low + step) % (high - low) + low
        changed[i][..., positions] = moved.to(sample[i].dtype)[..., positions]
        return changed

    def _share(self, sample):
        """What label 0 alone adds to loss and gradients: the difference of two labels."""
        one, other = (self._run(self._with_label(sample, c)) for c in (self.one, self.other))
        return one[0] - other[0], [a - b for a, b in zip(one[1], other[1], strict=True)]

    def _run(self, sample):
        step = self.step
        args = [t.clone() for t in sample]
        kwargs = dict(zip(step.keywords, args[step.positional :], strict=True))
        torch.manual_seed(self.seed)
        with torch.enable_grad(), self.places.holding(copies(self.places.buffers)):
            loss = step.step(*args[: step.positional], **kwargs)
            grads = torch.autograd.grad(loss, self.trainable, allow_unused=True)
        zeros = (torch.zeros_like(p) for p in self.trainable)
        return loss.detach().double(), [(z if g is None else g).double() for g, z in zip(grads, zeros, strict=True)]


def _distance(one, other):
    """Relative distance of two (loss, gradients)."""
    tensors = [one[0], *one[1]], [other[0], *other[1]]
    gap = sum(float((a - b).square().sum()) for a, b in zip(*tensors, strict=True)) ** 0.5
    size = max(sum(float(t.square().sum()) for t in side) ** 0.5 for side in tensors)
    return gap / size if size > 0 else 0.0
