"""Small nets, one per kind of torch.nn module, family or loss: what users of plain PyTorch try first.

CASES: {name: maker}. A maker returns a module whose forward takes x [4, 8, 6] (fp32), ids [4, 6] (below 11)
and labels [4] (below 5), and returns a scalar loss.
"""

import torch
from torch import nn
from torch.nn import functional as F

CASES = {}
BATCH, WIDTH, LENGTH, VOCABULARY, CLASSES = 4, 8, 6, 11, 5


def inputs(samples, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return {
        "x": torch.rand(samples, WIDTH, LENGTH, generator=generator) * 2 - 1,
        "ids": torch.randint(VOCABULARY, (samples, LENGTH), generator=generator),
        "labels": torch.randint(CLASSES, (samples,), generator=generator),
    }


class Case(nn.Module):
    """`body(x, ids)` gives features [4, ...]; the loss is a cross-entropy behind a linear layer, or `loss`."""

    def __init__(self, body=None, loss=None, features=None):
        super().__init__()
        self.body, self.loss = body, loss
        if loss is None or features:
            self.head = nn.LazyLinear(features or CLASSES)

    def forward(self, x, ids, labels):
        h = x if self.body is None else self.body(x, ids)
        h = self.head(h.flatten(1))
        return F.cross_entropy(h, labels) if self.loss is None else self.loss(h, x, labels)


class OnX(nn.Module):
    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x, ids):
        for layer in self.layers:
            x = layer(x)
        return x


class Function(nn.Module):
    def __init__(self, function, **modules):
        super().__init__()
        self.function = function
        for name, module in modules.items():
            self.add_module(name, module)

    def forward(self, *args):
        return self.function(self, *args)


def case(name):
    def register(maker):
        CASES[name] = maker
        return maker

    return register


def on_x(name, *makers):
    CASES[name] = lambda: Case(OnX(*(make() for make in makers)))


def function(name, body, **makers):
    CASES[name] = lambda: Case(Function(body, **{k: make() for k, make in makers.items()}))


def loss(name, compute, features=CLASSES, **makers):
    CASES[name] = lambda: Case(None, Function(compute, **{k: make() for k, make in makers.items()}), features)


class Reshape(nn.Module):
    def __init__(self, *shape):
        super().__init__()
        self.shape = shape

    def forward(self, x):
        return x.reshape(x.shape[0], *self.shape)


def image():
    return Reshape(3, 4, 4)


def volume():
    return Reshape(2, 2, 3, 4)


# Recurrent nets.
for kind in (nn.LSTM, nn.GRU, nn.RNN):
    function(f"{kind.__name__}", lambda m, x, ids: m.rnn(x.transpose(1, 2))[0], rnn=lambda kind=kind: kind(WIDTH, 6, batch_first=True))
function(
    "LSTM of two layers, both directions",
    lambda m, x, ids: m.rnn(x.permute(2, 0, 1))[0].transpose(0, 1),
    rnn=lambda: nn.LSTM(WIDTH, 5, num_layers=2, bidirectional=True),
)
function("LSTM with projection", lambda m, x, ids: m.rnn(x.transpose(1, 2))[0], rnn=lambda: nn.LSTM(WIDTH, 6, proj_size=3, batch_first=True))
function("GRU language model", lambda m, x, ids: m.rnn(m.emb(ids))[0], emb=lambda: nn.Embedding(VOCABULARY, 6), rnn=lambda: nn.GRU(6, 7, batch_first=True))
function("LSTM last state", lambda m, x, ids: m.rnn(m.emb(ids))[1][0][-1], emb=lambda: nn.Embedding(VOCABULARY, 6), rnn=lambda: nn.LSTM(6, 7, batch_first=True))
function(
    "GRU last states, both directions",
    lambda m, x, ids: torch.cat(m.rnn(x.transpose(1, 2))[1].unbind(0), 1),
    rnn=lambda: nn.GRU(WIDTH, 4, num_layers=2, bidirectional=True, batch_first=True),
)
function("RNN with relu", lambda m, x, ids: m.rnn(x.transpose(1, 2))[0], rnn=lambda: nn.RNN(WIDTH, 6, nonlinearity="relu", batch_first=True))
function("GRU without bias", lambda m, x, ids: m.rnn(x.transpose(1, 2))[0], rnn=lambda: nn.GRU(WIDTH, 6, bias=False, batch_first=True))
for kind in (nn.LSTMCell, nn.GRUCell, nn.RNNCell):
    function(
        kind.__name__,
        lambda m, x, ids: torch.cat([t for t in (m.cell(x[:, :, 0]) if isinstance(m.cell, nn.LSTMCell) else [m.cell(x[:, :, 0])])], 1),
        cell=lambda kind=kind: kind(WIDTH, 6),
    )

# Convolutions, pooling, resampling.
on_x("Conv1d", lambda: nn.Conv1d(WIDTH, 6, 3, padding=1, stride=2), nn.ReLU)
on_x("Conv1d padded by name", lambda: nn.Conv1d(WIDTH, 6, 3, padding="same", padding_mode="circular"), nn.Tanh)
on_x("Conv2d groups and dilation", lambda: Reshape(4, 3, 4), lambda: nn.Conv2d(4, 6, 2, dilation=2, groups=2), nn.GELU)
on_x("Conv2d reflect", image, lambda: nn.Conv2d(3, 6, 3, padding=1, padding_mode="reflect"), nn.SiLU)
on_x("Conv2d depthwise", image, lambda: nn.Conv2d(3, 6, 3, padding=1, groups=3, bias=False), nn.ReLU6)
on_x("Conv2d channels last", image, lambda: nn.Conv2d(3, 6, 3).to(memory_format=torch.channels_last), nn.ReLU)
on_x("Conv3d", volume, lambda: nn.Conv3d(2, 4, 2, padding=1), nn.ELU)
on_x("ConvTranspose1d", lambda: nn.ConvTranspose1d(WIDTH, 4, 3, stride=2, padding=1, output_padding=1), nn.LeakyReLU)
on_x("ConvTranspose2d", image, lambda: nn.ConvTranspose2d(3, 4, 3, stride=2), nn.Hardtanh)
on_x("ConvTranspose3d", volume, lambda: nn.ConvTranspose3d(2, 3, 2), nn.Softplus)
on_x("MaxPool1d", lambda: nn.Conv1d(WIDTH, 6, 1), lambda: nn.MaxPool1d(2))
on_x("MaxPool2d", image, lambda: nn.Conv2d(3, 6, 1), lambda: nn.MaxPool2d(3, stride=1, padding=1))
on_x("MaxPool3d", volume, lambda: nn.Conv3d(2, 4, 1), lambda: nn.MaxPool3d(2, stride=1))
on_x("AvgPool1d", lambda: nn.Conv1d(WIDTH, 6, 1), lambda: nn.AvgPool1d(2))
on_x("AvgPool2d", image, lambda: nn.Conv2d(3, 6, 1), lambda: nn.AvgPool2d(2, ceil_mode=True, count_include_pad=False))
on_x("AvgPool3d", volume, lambda: nn.Conv3d(2, 4, 1), lambda: nn.AvgPool3d(2, stride=1))
on_x("AdaptiveAvgPool1d", lambda: nn.Conv1d(WIDTH, 6, 1), lambda: nn.AdaptiveAvgPool1d(3))
on_x("AdaptiveAvgPool2d", image, lambda: nn.Conv2d(3, 6, 1), lambda: nn.AdaptiveAvgPool2d((3, 1)))
on_x("AdaptiveAvgPool2d to one", image, lambda: nn.Conv2d(3, 6, 1), lambda: nn.AdaptiveAvgPool2d(1))
on_x("AdaptiveMaxPool2d", image, lambda: nn.Conv2d(3, 6, 1), lambda: nn.AdaptiveMaxPool2d(2))
on_x("LPPool2d", image, lambda: nn.Conv2d(3, 6, 1), nn.Sigmoid, lambda: nn.LPPool2d(2, 2))
on_x("Upsample nearest", image, lambda: nn.Conv2d(3, 2, 1), lambda: nn.Upsample(scale_factor=2))
on_x("Upsample bilinear", image, lambda: nn.Conv2d(3, 2, 1), lambda: nn.Upsample(scale_factor=2, mode="bilinear"))
on_x("Upsample bicubic", image, lambda: nn.Conv2d(3, 2, 1), lambda: nn.Upsample(size=(7, 7), mode="bicubic", align_corners=True))
on_x("Upsample linear", lambda: nn.Conv1d(WIDTH, 2, 1), lambda: nn.Upsample(scale_factor=2, mode="linear"))
on_x("Upsample trilinear", volume, lambda: nn.Conv3d(2, 2, 1), lambda: nn.Upsample(scale_factor=2, mode="trilinear"))
on_x("PixelShuffle", image, lambda: nn.Conv2d(3, 8, 1), lambda: nn.PixelShuffle(2), lambda: nn.PixelUnshuffle(4))
on_x(
    "padding",
    image,
    lambda: nn.Conv2d(3, 2, 1),
    lambda: nn.ReflectionPad2d(1),
    lambda: nn.ReplicationPad2d(1),
    lambda: nn.ZeroPad2d(1),
    lambda: nn.ConstantPad2d(1, 0.5),
)
on_x("Unfold", image, lambda: nn.Conv2d(3, 2, 1), lambda: nn.Unfold(2))
on_x("Fold", lambda: nn.Linear(LENGTH, 9), lambda: nn.Fold((4, 4), 2))

# Norms.
on_x("BatchNorm1d", lambda: nn.BatchNorm1d(WIDTH), nn.ReLU)
on_x("BatchNorm2d", image, lambda: nn.Conv2d(3, 4, 3), lambda: nn.BatchNorm2d(4), nn.ReLU)
on_x("BatchNorm3d plain", volume, lambda: nn.Conv3d(2, 4, 2), lambda: nn.BatchNorm3d(4, affine=False, track_running_stats=False))
on_x("GroupNorm", lambda: nn.GroupNorm(2, WIDTH), nn.ReLU)
on_x("InstanceNorm1d", lambda: nn.InstanceNorm1d(WIDTH, affine=True))
on_x("InstanceNorm2d", image, lambda: nn.Conv2d(3, 4, 1), lambda: nn.InstanceNorm2d(4, affine=True, track_running_stats=True))
on_x("LayerNorm", lambda: nn.LayerNorm(LENGTH), lambda: nn.LayerNorm((WIDTH, LENGTH), elementwise_affine=False))
on_x("RMSNorm", lambda: nn.RMSNorm(LENGTH))
on_x("LocalResponseNorm", image, lambda: nn.Conv2d(3, 6, 1), lambda: nn.LocalResponseNorm(3))

# Activations.
on_x(
    "activations",
    *(
        lambda kind=kind: nn.Sequential(nn.Linear(LENGTH, LENGTH), kind())
        for kind in (nn.CELU, nn.SELU, nn.Mish, nn.Hardswish, nn.Hardsigmoid, nn.LogSigmoid, nn.Softsign, nn.Tanhshrink, nn.Softshrink, nn.Hardshrink, nn.PReLU)
    ),
)
on_x("GLU", lambda: nn.GLU(dim=1), lambda: nn.Linear(LENGTH, 4), lambda: nn.Softmax(-1), lambda: nn.LogSoftmax(1), lambda: nn.Softmin(-1))
on_x("Threshold", lambda: nn.Linear(LENGTH, 4), lambda: nn.Threshold(0.1, -0.2), lambda: nn.GELU(approximate="tanh"))
nothing = lambda: nn.Dropout(0.0), lambda: nn.Dropout1d(0.0), lambda: nn.AlphaDropout(0.0), nn.Sigmoid, lambda: nn.Dropout1d(0.0, inplace=True)
on_x("Dropout of nothing", lambda: nn.Linear(LENGTH, 4), *nothing)

# Embeddings.
function("Embedding", lambda m, x, ids: m.emb(ids), emb=lambda: nn.Embedding(VOCABULARY, 5, padding_idx=0))
function("Embedding by frequency", lambda m, x, ids: m.emb(ids), emb=lambda: nn.Embedding(VOCABULARY, 5, scale_grad_by_freq=True))
for mode in ("sum", "mean", "max"):
    function(f"EmbeddingBag {mode} padded", lambda m, x, ids: m.emb(ids % 3), emb=lambda mode=mode: nn.EmbeddingBag(VOCABULARY, 5, mode=mode, padding_idx=1))
    function(f"EmbeddingBag {mode}", lambda m, x, ids: m.emb(ids), emb=lambda mode=mode: nn.EmbeddingBag(VOCABULARY, 5, mode=mode))
function("EmbeddingBag weighted", lambda m, x, ids: m.emb(ids, per_sample_weights=x[:, 0]), emb=lambda: nn.EmbeddingBag(VOCABULARY, 5, mode="sum"))
function("Bilinear", lambda m, x, ids: m.both(x, x * 2), both=lambda: nn.Bilinear(LENGTH, LENGTH, 3))
function("weight_norm", lambda m, x, ids: m.fc(x), fc=lambda: nn.utils.parametrizations.weight_norm(nn.Linear(LENGTH, 4)))
function("old weight_norm", lambda m, x, ids: m.fc(x), fc=lambda: nn.utils.weight_norm(nn.Linear(LENGTH, 4)))
function("spectral_norm", lambda m, x, ids: m.fc(x), fc=lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(LENGTH, 4)))


def written(m, x, ids):
    h = m.fc(x).clone()
    h[:, 0].zero_()
    h[:, 1, ::2] = 1.0
    return h * 2


function("writes in place", written, fc=lambda: nn.Linear(LENGTH, 6))


def variation(m, x, ids):
    """Differences of neighbours along two dims, as a total variation has them."""
    h = m.fc(x)
    return (h[:, 1:] - h[:, :-1]).abs().mean(1) + (h[..., 1:] - h[..., :-1]).abs().mean(1, keepdim=True).mean(2)


function("differences along two dims", variation, fc=lambda: nn.Linear(LENGTH, 6))


# Families of their own.
def graph_net(m, x, ids):
    """Nodes are the channels, ids [4, 6] are three edges of each graph."""
    h = x.reshape(-1, LENGTH)
    source, target = (ids.view(-1, 3, 2) % WIDTH + WIDTH * torch.arange(len(x))[:, None, None]).flatten(0, 1).unbind(1)
    message = F.relu(m.edge(torch.cat([h[source], h[target]], -1)))
    degree = torch.zeros(len(h)).scatter_add(0, target, torch.ones(len(target))).clamp(min=1)
    return (h + torch.zeros_like(h).index_add(0, target, message) / degree[:, None]).view(x.shape)


def state_space(m, x, ids):
    x = x.transpose(1, 2)
    step, decay, state, out = F.softplus(m.step(x)), -torch.exp(m.decay.weight), x.new_zeros(len(x), WIDTH, 3), []
    for t in range(LENGTH):
        state = torch.exp(step[:, t, :, None] * decay) * state + (step[:, t] * x[:, t])[..., None] * m.read(x)[:, t, None]
        out.append((state * m.write(x)[:, t, None]).sum(-1))
    return torch.stack(out, 1)


def experts(m, x, ids):
    tokens = x.transpose(1, 2).reshape(-1, WIDTH)
    weight, chosen = m.gate(tokens).softmax(-1).topk(2, -1)
    return sum(expert(tokens) * ((chosen == i) * weight).sum(-1, keepdim=True) for i, expert in enumerate(m.experts)).view(len(x), -1)


def codebook(m, x, ids):
    z = m.fc(x)
    nearest = (z[:, :, None] - m.codes.weight).square().sum(-1).argmin(-1)
    return z + (m.codes(nearest) - z).detach() + 0.1 * (z.detach() - m.codes(nearest)).square()


class Teacher(nn.Module):
    """A buffer that follows a weight, read before and written after it."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(LENGTH, 4)
        self.register_buffer("weight", torch.rand(4, LENGTH))

    def forward(self, x):
        with torch.no_grad():
            target = F.linear(x, self.weight)
            self.weight.lerp_(self.fc.weight, 0.1)
        return (self.fc(x) - target).square()


class Delayed(nn.Module):
    """Buffers that take each other's tensors: the latest means, the ones before, and two that change places."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(LENGTH, 4)
        for name in ("latest", "before", "even", "odd"):
            self.register_buffer(name, torch.rand(4))

    def forward(self, x):
        h = self.fc(x)
        out = (h - self.latest.clone() + 2 * self.before.clone()) * self.even.clone()
        self.before, self.latest = self.latest, h.detach().mean((0, 1))
        self.even.data, self.odd.data = self.odd.data, self.even.data
        return out


class Twice(nn.Module):
    """One norm under two names, as blocks that are shared have it."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(LENGTH, LENGTH)
        self.norm = nn.BatchNorm1d(WIDTH)
        self.again = self.norm

    def forward(self, x):
        return self.again(self.fc(self.norm(x)))


class Extended(nn.Module):
    """New tokens next to frozen ones: the gradient of what was added is a part of that of the whole, at an offset, and the sum of two."""

    def __init__(self):
        super().__init__()
        self.known = nn.Parameter(torch.rand(VOCABULARY - 4, LENGTH) - 0.5, requires_grad=False)
        self.added = nn.Parameter(torch.rand(4, LENGTH) - 0.5)

    def table(self):
        return torch.cat([self.known, self.added])

    def forward(self, x, ids):
        return F.linear(x + F.embedding(ids, self.table())[:, :1], self.table())


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return -ctx.scale * gradient, None


function("graph net", graph_net, edge=lambda: nn.Linear(2 * LENGTH, LENGTH))
function(
    "state space",
    state_space,
    step=lambda: nn.Linear(WIDTH, WIDTH),
    decay=lambda: nn.Embedding(WIDTH, 3),
    read=lambda: nn.Linear(WIDTH, 3),
    write=lambda: nn.Linear(WIDTH, 3),
)
function("experts", experts, gate=lambda: nn.Linear(WIDTH, 3), experts=lambda: nn.ModuleList(nn.Linear(WIDTH, 4) for _ in range(3)))
CASES["new tokens next to frozen ones"] = lambda: Case(Extended())
function("codebook", codebook, fc=lambda: nn.Linear(LENGTH, 4), codes=lambda: nn.Embedding(7, 4))
on_x("teacher in a buffer", Teacher)
on_x("norm under two names", Twice)
function("reversed gradient", lambda m, x, ids: m.fc(x) + Reverse.apply(m.fc(x).tanh(), 0.3), fc=lambda: nn.Linear(LENGTH, 4))


# Operators that run by libtorch.
def warped(m, x, ids):
    image = x.view(4, 3, 4, 4)
    grid = F.affine_grid(torch.eye(2, 3) + m.where(x.flatten(1)).view(4, 2, 3).tanh() * 0.2, (4, 3, 5, 5), align_corners=False)
    picked, where = F.max_pool2d(F.grid_sample(m.conv(image), grid, align_corners=False), 2, 1, return_indices=True)
    return F.max_unpool2d(picked, where, 2, 1, output_size=(5, 5)) + F.interpolate(m.conv(image), 5, mode="bilinear", antialias=True)


def decomposed(m, x, ids):
    definite = m.fc.weight @ m.fc.weight.T + torch.eye(LENGTH)
    lower = torch.linalg.cholesky(definite)
    turned = torch.matrix_exp(m.fc.weight - m.fc.weight.T)
    return torch.cholesky_solve((m.fc(x) @ turned).mT, lower) + torch.linalg.solve(definite, x.mT) * torch.logdet(definite) + torch.linalg.inv(definite)[:, :1]


def ordered(m, x, ids):
    h = m.fc(x)
    return torch.cat(
        [h.median(-1).values, h.kthvalue(2).values, h.cummin(-1).values[..., -1], torch.cdist(h, x).flatten(1), (h.square() + 1).lgamma().nansum(-1)], 1
    )


function("grid sampling and unpooling", warped, where=lambda: nn.Linear(WIDTH * LENGTH, 6), conv=lambda: nn.Conv2d(3, 3, 1))
function("decompositions", decomposed, fc=lambda: nn.Linear(LENGTH, LENGTH))
function("orthogonal", lambda m, x, ids: m.fc(x), fc=lambda: nn.utils.parametrizations.orthogonal(nn.Linear(LENGTH, LENGTH)))
function("medians, distances and lgamma", ordered, fc=lambda: nn.Linear(LENGTH, LENGTH))


# Attention.
function(
    "MultiheadAttention",
    lambda m, x, ids: m.attend(x.transpose(1, 2), x.transpose(1, 2), x.transpose(1, 2), need_weights=False)[0],
    attend=lambda: nn.MultiheadAttention(WIDTH, 2, batch_first=True),
)
function(
    "MultiheadAttention with weights and masks",
    lambda m, x, ids: m.attend(
        x.transpose(1, 2),
        x.transpose(1, 2),
        x.transpose(1, 2),
        key_padding_mask=(ids > 8) & (torch.arange(LENGTH) > 0),
        attn_mask=torch.ones(LENGTH, LENGTH).triu(1).bool(),
    )[0],
    attend=lambda: nn.MultiheadAttention(WIDTH, 2, batch_first=True, add_bias_kv=True),
)
function(
    "TransformerEncoder",
    lambda m, x, ids: m.encode(x.transpose(1, 2)),
    encode=lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(WIDTH, 2, 12, dropout=0.0, batch_first=True), 2),
)
function(
    "TransformerEncoder causal",
    lambda m, x, ids: m.encode(x.transpose(1, 2), mask=nn.Transformer.generate_square_subsequent_mask(LENGTH), is_causal=True),
    encode=lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(WIDTH, 2, 12, dropout=0.0, batch_first=True, norm_first=True, activation="gelu"), 1),
)
function(
    "TransformerDecoder",
    lambda m, x, ids: m.decode(x.transpose(1, 2), x.transpose(1, 2)),
    decode=lambda: nn.TransformerDecoder(nn.TransformerDecoderLayer(WIDTH, 2, 12, dropout=0.0, batch_first=True), 1),
)
function(
    "Transformer",
    lambda m, x, ids: m.both(x.permute(2, 0, 1), x.permute(2, 0, 1)).transpose(0, 1),
    both=lambda: nn.Transformer(WIDTH, 2, 1, 1, 12, dropout=0.0),
)
function(
    "scaled_dot_product_attention",
    lambda m, x, ids: F.scaled_dot_product_attention(*m.fc(x.transpose(1, 2))[:, None].chunk(3, -1), is_causal=True),
    fc=lambda: nn.Linear(WIDTH, 24),
)


# Complex numbers, as rotary embeddings use them; the products come in orders that lie in memory unlike their result.
def rotate(m, x, ids):
    z = torch.view_as_complex(m.fc(x).unflatten(-1, (-1, 2)))  # [4, 8, 3]
    turn = torch.polar(torch.ones(LENGTH), torch.arange(LENGTH) * 0.3).expand(WIDTH, LENGTH)[:, :3]
    turned = torch.view_as_real((z * turn).transpose(1, 2) * z.transpose(1, 2).conj()[:, :, :1]).flatten(2)
    return turned + torch.view_as_real(z * 0.5).transpose(1, 2).flatten(2)


class Turned(nn.Module):
    """Rotary angles in a complex buffer that is not saved."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(LENGTH, 6)
        self.register_buffer("turn", torch.polar(torch.ones(WIDTH, 3), torch.arange(3 * WIDTH).view(WIDTH, 3) * 0.3), persistent=False)

    def forward(self, x):
        return torch.view_as_real(torch.view_as_complex(self.fc(x).unflatten(-1, (3, 2))) * self.turn)


on_x("complex buffer", Turned)
on_x("delay line of buffers", Delayed)
for norm in (lambda: nn.BatchNorm1d(WIDTH), lambda: nn.BatchNorm1d(WIDTH).eval(), lambda: nn.LayerNorm(LENGTH), nn.LogSigmoid):
    function(
        f"{type(norm()).__name__}{'' if norm().training else ' in eval'} over transposed features",
        lambda m, x, ids: m.out(m.norm(m.fc(x.transpose(1, 2)).transpose(1, 2)).transpose(1, 2)),
        fc=lambda: nn.Linear(WIDTH, WIDTH),
        norm=norm,
        out=lambda: nn.Linear(WIDTH, 3),
    )
function("complex rotation", rotate, fc=lambda: nn.Linear(LENGTH, 6))


def rotated_attention(m, x, ids):
    turn = torch.polar(torch.ones(LENGTH, 1, 2), torch.arange(LENGTH * 2).view(LENGTH, 1, 2) * 0.2)
    q, k, v = (part.unflatten(-1, (2, 4)) for part in m.qkv(x.transpose(1, 2)).chunk(3, -1))
    q, k = (torch.view_as_real(torch.view_as_complex(part.reshape(4, LENGTH, 2, 2, 2)) * turn).flatten(3) for part in (q, k))
    return F.scaled_dot_product_attention(*(part.transpose(1, 2) for part in (q, k, v)), is_causal=True)


function("complex attention", rotated_attention, qkv=lambda: nn.Linear(WIDTH, 3 * WIDTH))


# Losses; h [4, 5] are scores.
def one_hot(labels):
    return F.one_hot(labels, CLASSES).float()


loss("cross entropy smoothed", lambda m, h, x, y: F.cross_entropy(h, y, label_smoothing=0.1))
loss("cross entropy of distributions", lambda m, h, x, y: F.cross_entropy(h, one_hot(y) * 0.8 + 0.04))
loss("cross entropy weighted", lambda m, h, x, y: m.loss(h, y), loss=lambda: nn.CrossEntropyLoss(weight=torch.rand(CLASSES) + 0.5))
loss(
    "cross entropy weighted and smoothed",
    lambda m, h, x, y: m.loss(h, y),
    loss=lambda: nn.CrossEntropyLoss(weight=torch.rand(CLASSES) + 0.5, label_smoothing=0.1),
)
loss("cross entropy summed", lambda m, h, x, y: F.cross_entropy(h, y, reduction="sum") / 4)
loss("cross entropy ignoring 0", lambda m, h, x, y: F.cross_entropy(h, y, ignore_index=0))
loss("cross entropy 2d", lambda m, h, x, y: F.cross_entropy(h.reshape(4, 3, 2, 2), y[:, None, None].expand(4, 2, 2) % 3), features=12)
loss("nll", lambda m, h, x, y: F.nll_loss(h.log_softmax(-1), y))
loss("bce with logits", lambda m, h, x, y: m.loss(h, one_hot(y)), loss=lambda: nn.BCEWithLogitsLoss(pos_weight=torch.rand(CLASSES) + 0.5))
loss("bce", lambda m, h, x, y: F.binary_cross_entropy(h.sigmoid(), one_hot(y)))
loss("kl divergence", lambda m, h, x, y: F.kl_div(h.log_softmax(-1), x[:, 0, :CLASSES].softmax(-1), reduction="batchmean"))
loss("kl divergence of logs", lambda m, h, x, y: F.kl_div(h.log_softmax(-1), x[:, 0, :CLASSES].log_softmax(-1), log_target=True, reduction="batchmean"))
loss("mse", lambda m, h, x, y: F.mse_loss(h, x[:, 0, :CLASSES]))
loss("l1", lambda m, h, x, y: F.l1_loss(h, x[:, 0, :CLASSES]))
loss("huber", lambda m, h, x, y: F.huber_loss(h, x[:, 0, :CLASSES], delta=0.5))
loss("smooth l1", lambda m, h, x, y: F.smooth_l1_loss(h, x[:, 0, :CLASSES]))
loss("soft margin", lambda m, h, x, y: F.soft_margin_loss(h, one_hot(y) * 2 - 1))
loss("hinge", lambda m, h, x, y: F.hinge_embedding_loss(h, one_hot(y) * 2 - 1))
loss("margin ranking", lambda m, h, x, y: F.margin_ranking_loss(h[:, 0], h[:, 1], x[:, 0, 0].sign()))
loss("triplet", lambda m, h, x, y: F.triplet_margin_loss(h, x[:, 0, :CLASSES], x[:, 1, :CLASSES]))
loss("cosine embedding", lambda m, h, x, y: F.cosine_embedding_loss(h, x[:, 0, :CLASSES], x[:, 0, 0].sign()))
loss("multi margin", lambda m, h, x, y: F.multi_margin_loss(h, y))
loss("multi margin squared", lambda m, h, x, y: F.multi_margin_loss(h, y, p=2, margin=0.5, weight=x[0, 0, :CLASSES].abs()))
loss("multi label margin", lambda m, h, x, y: F.multilabel_margin_loss(h, torch.stack([y, (y + 1) % CLASSES, -torch.ones_like(y), y, y], 1)))
loss("multi label soft margin", lambda m, h, x, y: F.multilabel_soft_margin_loss(h, one_hot(y)))
loss("normal distribution", lambda m, h, x, y: -torch.distributions.Normal(h, 0.5).log_prob(x[:, 0, :CLASSES]).mean())
loss("gamma distribution", lambda m, h, x, y: -torch.distributions.Gamma(F.softplus(h) + 0.5, 2.0).log_prob(x[:, 0, :CLASSES].square() + 0.1).mean())
loss("gaussian nll", lambda m, h, x, y: F.gaussian_nll_loss(h, x[:, 0, :CLASSES], x[:, 1, :CLASSES].exp()))
loss("poisson nll", lambda m, h, x, y: F.poisson_nll_loss(h, one_hot(y)))
