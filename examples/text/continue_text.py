"""continue_text.py CONFIG SAVED PROMPT: opens what dcrun saved in transformers and lets it continue the prompt, always by the likeliest byte."""

import sys

import torch
import transformers
from safetensors.torch import load_file

config = transformers.AutoConfig.from_pretrained(sys.argv[1])
model = transformers.AutoModelForCausalLM.from_config(config)
model.load_state_dict(load_file(sys.argv[2]), strict=True)
tokens = torch.tensor([list(sys.argv[3].encode())])
with torch.no_grad():
    for _ in range(40):
        tokens = torch.cat([tokens, model(tokens[:, -128:]).logits[:, -1:].argmax(-1)], dim=1)
print(bytes(token for token in tokens[0].tolist() if token < 256).decode(errors="replace"))
