"""LSTM, GRU and RNN as plain operators, one time step after the other, while a module is traced.

The fused operators hide their workspace, and torch 2.11's own decomposition drops the dropout between
layers and returns final states of another shape. The formulas are those of torch.nn.LSTM, GRU and RNN.
"""

import contextlib

import torch
from torch.nn import functional as F

from .errors import ExportError


@contextlib.contextmanager
def by_steps():
    """While open, the recurrent modules of torch.nn compute step by step."""
    cells = {"lstm": _lstm, "gru": _gru, "rnn_tanh": _rnn(torch.tanh), "rnn_relu": _rnn(torch.relu)}
    table = vars(torch._VF)
    before = {name: table[name] for name in cells if name in table}
    table.update({name: _layers(cell) for name, cell in cells.items()})
    try:
        yield
    finally:
        for name in cells:
            del table[name]
        table.update(before)


def _layers(cell):
    """The function that torch.nn calls, with `cell` for one step."""

    def run(inputs, states, weights, has_bias, layers, dropout, train, bidirectional, batch_first=None):
        if batch_first is None:
            raise ExportError(
                "a packed sequence has shapes that depend on its lengths; give the recurrent "
                "module a padded batch, and mask what lies behind the end in the loss"
            )
        is_lstm = cell is _lstm
        states = list(zip(*(s.unbind(0) for s in (states if is_lstm else (states,)))))
        directions = 2 if bidirectional else 1
        each = len(weights) // (layers * directions)
        x, last = inputs.transpose(0, 1) if batch_first else inputs, []
        for layer in range(layers):
            outputs = []
            for direction in range(directions):
                index = layer * directions + direction
                own = _named(weights[index * each : (index + 1) * each], has_bias)
                output, state = _scan(cell, x, states[index], own, backwards=direction == 1)
                outputs.append(output)
                last.append(state)
            x = outputs[0] if directions == 1 else torch.cat(outputs, dim=-1)
            if dropout and train and layer + 1 < layers:
                x = F.dropout(x, dropout)
        x = x.transpose(0, 1) if batch_first else x
        return (x, *(torch.stack(kind) for kind in zip(*last)))

    return run


def _named(weights, has_bias):
    """(input weight, state weight, input bias, state bias, projection), None for what is absent."""
    given = list(weights)
    biases = given[2:4] if has_bias else [None, None]
    projection = given[4 if has_bias else 2 :]
    return (*given[:2], *biases, projection[0] if projection else None)


def _scan(cell, x, state, weights, backwards):
    """Outputs [steps, batch, features] and the last state of one layer in one direction."""
    steps = F.linear(x, weights[0], weights[2]).unbind(0)
    outputs = []
    for step in reversed(steps) if backwards else steps:
        state = cell(step, state, weights)
        outputs.append(state[0])
    return torch.stack(outputs[::-1] if backwards else outputs), state


def _lstm(step, state, weights):
    h, c = state
    i, f, g, o = (F.linear(h, weights[1], weights[3]) + step).chunk(4, dim=-1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    h = o.sigmoid() * c.tanh()
    return (h if weights[4] is None else F.linear(h, weights[4])), c


def _gru(step, state, weights):
    (h,) = state
    r, z, n = F.linear(h, weights[1], weights[3]).chunk(3, dim=-1)
    step_r, step_z, step_n = step.chunk(3, dim=-1)
    z = (z + step_z).sigmoid()
    n = (step_n + n * (r + step_r).sigmoid()).tanh()
    return ((h - n) * z + n,)


def _rnn(activation):
    def cell(step, state, weights):
        return (activation(F.linear(state[0], weights[1], weights[3]) + step),)

    return cell
