"""PyTorch's side of gpu.py: a Llama in plain PyTorch, trained with AdamW in bfloat16 with float32 masters, as dcrun trains it.

gpu_peer.py --kind eager|reduce-overhead|max-autotune-no-cudagraphs --steps N: one line of JSON: milliseconds of each measured step, seconds to the first one.
gpu_peer.py --write-config FILE [--layers N]: the same model as a config of transformers, for scripts/export.py.
"""

import argparse
import json
import time

SHAPE = {
    "model_type": "llama",
    "vocab_size": 32000,
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_hidden_layers": 22,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
}
BATCH, LENGTH = 1, 4096


def flops_of_step():
    """Of products, forward and backward: 6 for each parameter and token outside of the embedding, and causal attention."""
    s = SHAPE
    head = s["hidden_size"] // s["num_attention_heads"]
    keys = 2 * s["num_key_value_heads"] * head * s["hidden_size"]
    layer = 2 * s["hidden_size"] ** 2 + keys + 3 * s["hidden_size"] * s["intermediate_size"]
    parameters = s["num_hidden_layers"] * layer + s["vocab_size"] * s["hidden_size"]
    attention = s["num_hidden_layers"] * s["hidden_size"] * LENGTH * 6
    return BATCH * LENGTH * (6 * parameters + attention)


def make_model():
    import torch
    from torch import nn
    from torch.nn import functional as F

    width, heads, key_heads = SHAPE["hidden_size"], SHAPE["num_attention_heads"], SHAPE["num_key_value_heads"]
    size = width // heads

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.o = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
            self.k, self.v = nn.Linear(width, key_heads * size, bias=False), nn.Linear(width, key_heads * size, bias=False)

        def forward(self, x, cos, sin):
            b, t, _ = x.shape
            q, k, v = (y.view(b, t, -1, size).transpose(1, 2) for y in (self.q(x), self.k(x), self.v(x)))
            q, k = (y * cos + torch.cat((-y[..., size // 2 :], y[..., : size // 2]), -1) * sin for y in (q, k))
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            return self.o(out.transpose(1, 2).reshape(b, t, width))

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm_1, self.norm_2, self.attention = nn.RMSNorm(width), nn.RMSNorm(width), Attention()
            self.gate, self.up = (nn.Linear(width, SHAPE["intermediate_size"], bias=False) for _ in range(2))
            self.down = nn.Linear(SHAPE["intermediate_size"], width, bias=False)

        def forward(self, x, cos, sin):
            x = x + self.attention(self.norm_1(x), cos, sin)
            y = self.norm_2(x)
            return x + self.down(F.silu(self.gate(y)) * self.up(y))

    class Llama(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(SHAPE["vocab_size"], width)
            self.blocks = nn.ModuleList(Block() for _ in range(SHAPE["num_hidden_layers"]))
            self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, SHAPE["vocab_size"], bias=False)

        def forward(self, tokens):
            positions = torch.arange(tokens.shape[1], device=tokens.device, dtype=torch.float32)
            angles = torch.outer(positions, 10000.0 ** (-torch.arange(0, size, 2, device=tokens.device) / size)).repeat(1, 2)
            x = self.embedding(tokens)
            cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
            for block in self.blocks:
                x = block(x, cos, sin)
            logits = self.head(self.norm(x)).float()
            return F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())

    return Llama()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--write-config")
    parser.add_argument("--layers", type=int, default=SHAPE["num_hidden_layers"], help="of the config")
    parser.add_argument("--kind", choices=("eager", "reduce-overhead", "max-autotune-no-cudagraphs"))
    parser.add_argument("--steps", type=int, default=10)
    arguments = parser.parse_args()
    if arguments.write_config:
        with open(arguments.write_config, "w") as file:
            json.dump({**SHAPE, "num_hidden_layers": arguments.layers}, file, indent=1)
        return
    started = time.perf_counter()
    import torch

    torch.manual_seed(0)
    with torch.device("cuda"):
        model = make_model().to(torch.bfloat16)
    masters = [p.detach().float() for p in model.parameters()]
    optimizer = torch.optim.AdamW(masters, lr=1e-4, fused=True)
    loss_of = model if arguments.kind == "eager" else torch.compile(model, mode=arguments.kind)
    times, first = [], 0.0
    for step in range(arguments.steps + 3):
        tokens = torch.randint(0, SHAPE["vocab_size"], (BATCH, LENGTH), device="cuda")
        torch.cuda.synchronize()
        begin = time.perf_counter()
        torch.compiler.cudagraph_mark_step_begin()
        loss_of(tokens).backward()
        for master, parameter in zip(masters, model.parameters(), strict=True):
            master.grad = parameter.grad.float()
        torch.nn.utils.clip_grad_norm_(masters, 1.0)
        optimizer.step()
        with torch.no_grad():
            torch._foreach_copy_(list(model.parameters()), masters)
        for parameter in model.parameters():
            parameter.grad = None
        torch.cuda.synchronize()
        if step == 0:
            first = time.perf_counter() - started
        if step >= 3:
            times.append(1e3 * (time.perf_counter() - begin))
    print(json.dumps({"step_ms": times, "first_step_s": first, "peak_bytes": torch.cuda.max_memory_allocated()}))


if __name__ == "__main__":
    main()
