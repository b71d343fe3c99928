"""Which tokens the labels are: those at the same positions, or the next ones.

Inputs are [batch, time]: dim 0 holds the rows of a micro-batch, the last dim the positions of a row. A model that shifts its labels
itself wants the same window as the tokens. A model whose caller shifts the targets wants the window one token later: with the same
window it learns to copy. The module's behaviour tells them apart, because of all labels the first one that counts says most:

- A causal model whose caller shifts predicts it from the token at its position, too, and from no later one: it must be the next. -> next
- A model that shifts predicts it from other tokens alone. Position 0 has none before it, so the model ignores that label.     -> same
- Else, it sees the token at its position and later ones: the label is the token itself, masked.                               -> same

"Sees" means that the share of the label in the loss, or in the gradient, changes with the tokens.
That share is the difference of two runs that differ in this label alone, so that all other terms of
the loss (other labels, a router's auxiliary loss) cancel. Batch norms use their running statistics meanwhile: those of the batch
depend on every token.
"""

import contextlib
import copy

import torch

from .errors import ExportError, first_line
from .inputs import draw
from .places import Places, copies
from .precision import REDUCED

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
                raise _unknown(name, f"the module fails on drawn inputs: {first_line(error)}") from error
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
    """Runs the module on drawn samples that differ in chosen tokens and in one label of each row."""

    def __init__(self, step, examples, descriptions, index, seed, widened):
        reduced = any(p.dtype in REDUCED for p in step.parameters())
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
        with _running_statistics(self.step):
            return self._answer(tokens)

    def _answer(self, tokens):
        sample = list(self.examples)
        if self.widened and any(e.dtype in REDUCED for e in sample):
            sample = [e.float() if e.is_floating_point() else e for e in sample]
        for i in [*tokens, self.index]:
            sample[i] = draw(self.descriptions[i], sample[i], self.generator)
        position = self._first_that_counts(sample)
        label = (..., position)
        self._require_rows(sample, tokens, position)
        sample[self.index] = self._all_ignored(sample, label)
        before = self._share(sample, label)

        def sees(i, positions):
            return _distance(before, self._share(self._redrawn(sample, i, (..., positions)), label))

        own, later = 0.0, 0.0
        for i in tokens:
            own_of_this, later_of_this = sees(i, slice(position, position + 1)), sees(i, slice(position + 1, None))
            if position + 1 == sample[i].shape[-1] and own_of_this > CHANGED:
                raise Undecided("no label counts but the last one, behind which there are no tokens that the model could see")
            if later_of_this < UNCHANGED and own_of_this > CHANGED:
                return "next"
            own, later = max(own, own_of_this), max(later, later_of_this)
        if own > CHANGED and later > CHANGED:
            if _mix_positions(self.step):
                raise Undecided("a norm over positions makes each label depend on later tokens, which may be all that the model sees of them")
            return "same"
        if own < UNCHANGED and position > 0 and max(later, *(sees(i, slice(0, position)) for i in tokens)) > CHANGED:
            return "same"
        if own > UNCHANGED:
            raise Undecided(
                f"the share of label {position}, the first that counts, depends on token {position}, and so little on that or on later ones that the model "
                "is neither plainly causal nor plainly bidirectional"
            )
        raise Undecided("the loss hardly depends on the first label that counts and its tokens")

    def _two_classes(self):
        """Two labels that differ, drawn so that no special class is met by rule."""
        low, high = int(self.description["low"]), int(self.description["high"])
        one, other = torch.randperm(high - low, generator=self.generator)[:2].tolist()
        return low + one, low + other

    def _first_that_counts(self, sample):
        """The first position whose labels the loss depends on: 0, 1 where the model shifts, or behind a prompt."""
        low, high = 0, sample[self.index].shape[-1]  # none below `low` counts, one below `high` does
        if not self._counts(sample, (..., slice(None))):
            raise Undecided("the loss does not depend on them")
        for end in (1, 2):  # the usual cases
            if low < high - 1:
                low, high = (low, end) if self._counts(sample, (..., slice(0, end))) else (end, high)
        while low < high - 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._counts(sample, (..., slice(0, middle))) else (middle, high)
        return low

    def _counts(self, sample, labels):
        classes = (self.one, self.one, self.other)
        one, again, other = (self._run(self._with_label(sample, labels, c)) for c in classes)
        return _distance(one, other) > 10 * _distance(one, again)

    def _all_ignored(self, sample, label):
        """Labels of which only `label` counts, where the module's loss can leave some out."""
        ignored = torch.full_like(sample[self.index], IGNORED)
        ignored[label] = self.one
        try:
            loss, _ = self._run([*sample[: self.index], ignored, *sample[self.index + 1 :]])
        except (IndexError, RuntimeError):
            return sample[self.index]
        return ignored if torch.isfinite(loss) else sample[self.index]

    def _require_rows(self, sample, tokens, position):
        """Raises if the share of a label in the last row depends on the tokens of other rows, as where dim 0 is the time."""
        if sample[self.index].dim() < 2 or sample[self.index].shape[0] < 2:
            return
        label = (-1, ..., position)
        sample = list(sample)
        sample[self.index] = self._all_ignored(sample, label)
        before = self._share(sample, label)
        for i in tokens:
            if _distance(before, self._share(self._redrawn(sample, i, (slice(0, -1),)), label)) > CHANGED:
                raise ExportError(
                    f"what a label of {self.description['name']!r} adds to the loss depends on the tokens of other rows, so dim 0 seems to be no batch; inputs are "
                    '[batch, time]: transpose them in the forward if the module wants [time, batch], and give "labels" in roles= only if dim 0 is the batch'
                )

    def _with_label(self, sample, labels, value):
        changed = list(sample)
        changed[self.index] = sample[self.index].clone()
        changed[self.index][labels] = value
        return changed

    def _redrawn(self, sample, i, places):
        changed = list(sample)
        changed[i] = sample[i].clone()
        description = self.descriptions[i]
        low, high = int(description["low"]), int(description["high"])
        step = torch.randint(1, max(high - low, 2), sample[i].shape, generator=self.generator)
        moved = (sample[i] - low + step) % (high - low) + low
        changed[i][places] = moved.to(sample[i].dtype)[places]
        return changed

    def _share(self, sample, label):
        """What one label alone adds to loss and gradients: the difference of two classes."""
        one, other = (self._run(self._with_label(sample, label, c)) for c in (self.one, self.other))
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


@contextlib.contextmanager
def _running_statistics(step):
    """While open, norms that have running statistics compute with them."""
    norms = [module for module in step.modules() if _has_running_statistics(module) and module.training]
    try:
        for module in norms:
            module.training = False
        yield
    finally:
        for module in norms:
            module.training = True


def _has_running_statistics(module):
    return isinstance(module, torch.nn.modules.batchnorm._NormBase) and module.running_mean is not None


def _mix_positions(step):
    """Whether it has norms whose statistics may be those of all positions."""
    kinds = (torch.nn.GroupNorm, torch.nn.modules.batchnorm._NormBase)
    return any(isinstance(module, kinds) and not _has_running_statistics(module) for module in step.modules())


def _distance(one, other):
    """Relative distance of two (loss, gradients)."""
    tensors = [one[0], *one[1]], [other[0], *other[1]]
    gap = sum(float((a - b).square().sum()) for a, b in zip(*tensors, strict=True)) ** 0.5
    size = max(sum(float(t.square().sum()) for t in side) ** 0.5 for side in tensors)
    return gap / size if size > 0 else 0.0
