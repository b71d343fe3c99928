"""How many of transformers' model families train here as they do in PyTorch: shrinking, the stock run, ours, the table."""
