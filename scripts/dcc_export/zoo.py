"""Models that DisCo (arXiv 2209.12769) was measured on, in PyTorch alone: of the published size, and small with the same operators.

VGG19 and ResNet50 are torchvision's. The Transformer is the base model of Vaswani et al. 2017, with norms before each layer; RNNLM the large LSTM of Zaremba et al. 2014;
the Reformer attends by sorted hashes (Kitaev et al. 2020) in chunks of a fixed size, without its reversible layers, which change memory and no number.
"""

import dataclasses

import torch
from torch import nn
from torch.nn import functional as F


@dataclasses.dataclass(frozen=True)
class Size:
    """Of a language model."""

    vocabulary: int
    width: int
    layers: int
    heads: int = 1
    inner: int = 0
    positions: int = 1024
    bucket: int = 64  # tokens of a chunk


SIZES = {
    "transformer": Size(32000, 512, 6, 8, 2048),
    "small-transformer": Size(256, 32, 1, 2, 64),
    "rnnlm": Size(10000, 1500, 2),
    "small-rnnlm": Size(256, 24, 2),
    "reformer": Size(32000, 512, 6, 8, 2048),
    "small-reformer": Size(256, 32, 2, 2, 64, bucket=8),
}
IMAGES = {"vgg19": (224, 1000), "resnet50": (224, 1000), "small-vgg19": (32, 10), "small-resnet50": (32, 10)}
FULL = ("vgg19", "resnet50", "transformer", "rnnlm", "reformer")
# (batch, seq)
SHAPES = {
    "vgg19": (32, None),
    "resnet50": (32, None),
    "transformer": (32, 128),
    "rnnlm": (20, 35),
    "reformer": (8, 512),
    "small-vgg19": (4, None),
    "small-resnet50": (4, None),
    "small-transformer": (2, 16),
    "small-rnnlm": (2, 6),
    "small-reformer": (2, 32),
}
NAMES = tuple(SHAPES)


class LanguageModelLoss(nn.Module):
    """Cross-entropy of a module that returns scores of tokens, each for the label at its position."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, labels):
        return F.cross_entropy(self.model(input_ids).flatten(0, 1), labels.flatten())


class Attention(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.heads = size.heads
        self.query = nn.Linear(size.width, size.width)
        self.key = nn.Linear(size.width, size.width)
        self.value = nn.Linear(size.width, size.width)
        self.out = nn.Linear(size.width, size.width)

    def _split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x, memory, causal=False):
        query, key, value = self._split(self.query(x)), self._split(self.key(memory)), self._split(self.value(memory))
        scores = query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5
        if causal:
            ahead = torch.ones(x.shape[1], memory.shape[1], dtype=torch.bool, device=x.device).triu(1)
            scores = scores.masked_fill(ahead, float("-inf"))
        return self.out((scores.softmax(-1) @ value).transpose(1, 2).flatten(2))


class HashedAttention(nn.Module):
    """Queries are keys. Tokens are sorted by hash, then by place; each attends in its chunk and the one before."""

    def __init__(self, size):
        super().__init__()
        self.heads, self.chunk = size.heads, size.bucket
        self.query = nn.Linear(size.width, size.width, bias=False)
        self.value = nn.Linear(size.width, size.width, bias=False)
        self.out = nn.Linear(size.width, size.width)
        self.register_buffer("directions", nn.init.normal_(torch.empty(size.width // size.heads, 4)))

    def _split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def _chunks(self, x):
        """Each chunk with the one before it; before the first is the last, which causality hides where it comes later."""
        own = x.unflatten(2, (-1, self.chunk))
        return own, torch.cat((own.roll(1, 2), own), 3)

    def forward(self, x):
        query, value = self._split(self.query(x)), self._split(self.value(x))
        length = x.shape[1]
        turned = query.detach() @ self.directions
        hashes = torch.cat((turned, -turned), -1).argmax(-1)
        places = torch.arange(length, device=x.device)
        order = torch.argsort(hashes * length + places, dim=-1)
        back = torch.argsort(order, dim=-1)
        wide = order.unsqueeze(-1).expand(query.shape)
        query, value = query.gather(2, wide), value.gather(2, wide)
        own, keys = self._chunks(query)
        at, seen = self._chunks(order)
        scores = own @ F.normalize(keys, dim=-1).transpose(-2, -1) * own.shape[-1] ** -0.5
        ahead = seen.unsqueeze(-2) > at.unsqueeze(-1)
        itself = seen.unsqueeze(-2) == at.unsqueeze(-1)
        scores = scores.masked_fill(ahead, -1e9).masked_fill(itself, -1e5)
        mixed = (scores.softmax(-1) @ self._chunks(value)[1]).flatten(2, 3)
        mixed = mixed.gather(2, back.unsqueeze(-1).expand(mixed.shape))
        return self.out(mixed.transpose(1, 2).flatten(2))


class Feed(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.up, self.down = nn.Linear(size.width, size.inner), nn.Linear(size.inner, size.width)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


class Embedding(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.tokens = nn.Embedding(size.vocabulary, size.width)
        self.places = nn.Embedding(size.positions, size.width)

    def forward(self, tokens):
        return self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))


class Layer(nn.Module):
    """`attentions`: of the tokens themselves, then of the encoder's."""

    def __init__(self, size, attentions):
        super().__init__()
        self.attentions = nn.ModuleList(attentions)
        self.norms = nn.ModuleList(nn.LayerNorm(size.width) for _ in range(len(attentions) + 1))
        self.feed = Feed(size)

    def forward(self, x, memory=None, causal=False):
        normed = self.norms[0](x)
        own = self.attentions[0]
        x = x + (own(normed) if isinstance(own, HashedAttention) else own(normed, normed, causal))
        if memory is not None:
            x = x + self.attentions[1](self.norms[1](x), memory)
        return x + self.feed(self.norms[-1](x))


class Transformer(nn.Module):
    """Encoder and decoder, both of the same tokens."""

    def __init__(self, size):
        super().__init__()
        self.embedding = Embedding(size)
        self.encoder = nn.ModuleList(Layer(size, [Attention(size)]) for _ in range(size.layers))
        self.decoder = nn.ModuleList(Layer(size, [Attention(size), Attention(size)]) for _ in range(size.layers))
        self.norm, self.middle = nn.LayerNorm(size.width), nn.LayerNorm(size.width)
        self.head = nn.Linear(size.width, size.vocabulary)

    def forward(self, tokens):
        memory = x = self.embedding(tokens)
        for layer in self.encoder:
            memory = layer(memory)
        memory = self.middle(memory)
        for layer in self.decoder:
            x = layer(x, memory, causal=True)
        return self.head(self.norm(x))


class Reformer(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.embedding = Embedding(size)
        self.layers = nn.ModuleList(Layer(size, [HashedAttention(size)]) for _ in range(size.layers))
        self.norm = nn.LayerNorm(size.width)
        self.head = nn.Linear(size.width, size.vocabulary)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


class Rnnlm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.embedding = nn.Embedding(size.vocabulary, size.width)
        self.lstm = nn.LSTM(size.width, size.width, size.layers, batch_first=True)
        self.head = nn.Linear(size.width, size.vocabulary)

    def forward(self, tokens):
        return self.head(self.lstm(self.embedding(tokens))[0])


def _images(kind, classes):
    from torchvision import models

    return models.vgg19(weights=None, num_classes=classes, dropout=0.0) if kind == "vgg19" else models.resnet50(weights=None, num_classes=classes)


def _small_images(kind, classes):
    """The same layers, VGG19's of a sixteenth of the width, ResNet50's once each instead of three to six times."""
    from torchvision.models import resnet, vgg

    if kind == "resnet50":
        return resnet.ResNet(resnet.Bottleneck, [1, 1, 1, 1], num_classes=classes)
    model = vgg.VGG(vgg.make_layers([width if width == "M" else width // 16 for width in vgg.cfgs["E"]]), num_classes=classes, init_weights=False)
    model.classifier = nn.Sequential(nn.Linear(32 * 49, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, classes))
    return model


def model_and_loss(name):
    """(the model, the class of the loss around it); None: the classifier's."""
    kind = name.removeprefix("small-")
    if name in IMAGES:
        return (_small_images if name != kind else _images)(kind, IMAGES[name][1]), None
    makers = {"transformer": Transformer, "rnnlm": Rnnlm, "reformer": Reformer}
    return makers[kind](SIZES[name]), LanguageModelLoss


def inputs(name, options, generator):
    """({name: tensor}, {name: role})"""
    if name in IMAGES:
        side, classes = IMAGES[name]
        shape = (options.batch, 3, side, side)
        values = {"x": torch.rand(shape, generator=generator) * 2 - 1, "labels": torch.randint(0, classes, shape[:1], generator=generator)}
        return values, {"x": {"role": "float", "low": -1.0, "high": 1.0}, "labels": {"role": "class", "low": 0, "high": classes}}
    high = SIZES[name].vocabulary
    tokens = torch.randint(0, high, (options.batch, options.seq + 1), generator=generator)
    bound = {"low": 0, "high": high}
    roles = {"input_ids": {"role": "tokens", **bound}, "labels": {"role": "labels", "labels": "next", **bound}}
    return {"input_ids": tokens[:, :-1].contiguous(), "labels": tokens[:, 1:].contiguous()}, roles
