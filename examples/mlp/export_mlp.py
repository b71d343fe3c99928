import sys
import torch
from export import export_train_step  # scripts/ is on PYTHONPATH


class Classifier(torch.nn.Module):
    # Two inputs per point, three classes; forward returns the loss.
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.Tanh(), torch.nn.Linear(32, 3))

    def forward(self, points, labels):
        return torch.nn.functional.cross_entropy(self.layers(points), labels)


if __name__ == "__main__":
    torch.manual_seed(0)
    model = Classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.01)
    batch = (torch.randn(16, 2), torch.randint(3, (16,)))
    export_train_step(model, batch, sys.argv[1], optimizer=optimizer, clip_norm=1.0)
