"""
ResNet-18 on CIFAR through sample()
===================================

Any torch module is a potential: ``torch.func.functional_call`` puts a flat vector of parameters into it. The setting is that of
Kim, Song & Liang 2020: 250 epochs, batches of 128, a learning rate that halves every 40 epochs, augmentation by flips and shifts.
``--full`` needs a GPU and ``--cifar``, an .npz file with x_train, y_train, x_test, y_test and images (n, 32, 32, 3); without a file
the script runs a narrow network on made-up images, to show that everything holds together. Batch norm uses the statistics of the
batch, also in predictions. Every image counts once in the likelihood, whatever was flipped or shifted: the likelihood's power is 1.
"""

# %%
# The network
# -----------
from dataclasses import dataclass

import matplotlib.pyplot as plt
import numpy as np
import torch
from experiment import Cells, parse, style, table
from torch import nn
from torch.func import functional_call

from sklearn_sgmcmc.samplers import ASGLD, MSGLD, SGLD
from sklearn_sgmcmc.sampling import sample
from sklearn_sgmcmc.schedules import StepDecay


@dataclass(frozen=True)
class Budget:
    """Where the images are, width of the first layers, epochs, batch size, learning rate, prior and draws; made-up images."""

    cifar: str = ""
    width: int = 4
    epochs: int = 6
    batch: int = 32
    learning_rate: float = 0.1
    prior_sd: float = 1.0
    temperature: float = 0.01
    decay_epochs: int = 40
    draws: int = 5
    made_up: int = 256
    size: int = 8
    seed: int = 0


FULL = Budget(width=64, epochs=250, batch=128, draws=50)
METHODS = {"SGLD": SGLD(), "MSGLD": MSGLD(), "ASGLD": ASGLD(bias_factor=0.01)}


class Block(nn.Module):
    """Two 3 x 3 convolutions around a shortcut."""

    def __init__(self, n_in, n_out, stride):
        super().__init__()
        self.first = nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(n_out, n_out, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(n_out, track_running_stats=False) for _ in range(2))
        plain = stride == 1 and n_in == n_out
        self.shortcut = nn.Identity() if plain else nn.Conv2d(n_in, n_out, 1, stride, bias=False)

    def forward(self, x):
        inner = self.norms[1](self.second(torch.relu(self.norms[0](self.first(x)))))
        return torch.relu(inner + self.shortcut(x))


def resnet18(n_classes, width):
    """Return the ResNet-18 for small images: no stride and no pooling at the start."""
    layers = [nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width, track_running_stats=False), nn.ReLU()]
    n_in = width
    for stage, stride in enumerate((1, 2, 2, 2)):
        n_out = width * 2**stage
        layers += [Block(n_in, n_out, stride), Block(n_out, n_out, 1)]
        n_in = n_out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(n_in, n_classes))


# %%
# A module as a potential over flat parameters
# --------------------------------------------
class ModulePotential:
    """U over flat parameters (C, P) of a module, from the next minibatch at every call."""

    def __init__(self, module, images, labels, budget, generator):
        self.module, self.images, self.labels, self.budget, self.generator = module, images, labels, budget, generator
        self.shapes = {name: parameter.shape for name, parameter in module.named_parameters()}
        self.order = torch.empty(0, dtype=torch.int64, device=images.device)

    def outputs(self, theta, images):
        """Return the module's outputs at the parameters of one chain, (P,)."""
        parts = theta.split([shape.numel() for shape in self.shapes.values()])
        named = {name: part.view(shape) for (name, shape), part in zip(self.shapes.items(), parts, strict=True)}
        return functional_call(self.module, named, (images,))

    def next_batch(self):
        """Return the next rows of a random order, flipped and shifted."""
        n, device = self.budget.batch, self.images.device
        if len(self.order) < n:
            self.order = torch.randperm(len(self.images), generator=self.generator, device=device)
        rows, self.order = self.order[:n], self.order[n:]
        images = self.images[rows]
        flip = torch.rand(len(rows), generator=self.generator, device=device) < 0.5
        images = torch.where(flip[:, None, None, None], images.flip(3), images)
        shift = torch.randint(-4, 5, (2,), generator=self.generator, device=device).tolist() if images.shape[2] > 16 else (0, 0)
        return images.roll(shift, dims=(2, 3)), self.labels[rows]

    def __call__(self, theta):
        """Return -log prior - (N / n) sum over the minibatch of log f, (C,)."""
        images, labels = self.next_batch()
        share = len(self.images) / len(images)
        fit = [nn.functional.cross_entropy(self.outputs(one, images), labels, reduction="sum") for one in theta]
        return 0.5 * (theta / self.budget.prior_sd).square().sum(1) + share * torch.stack(fit)


def load(budget, device):
    """Return training and test images (n, 3, size, size) and labels."""
    if budget.cifar:
        with np.load(budget.cifar) as file:
            parts = [file[name] for name in ("x_train", "y_train", "x_test", "y_test")]
        images = [torch.from_numpy(part).permute(0, 3, 1, 2).float().to(device) / 255 for part in parts[::2]]
        centre, spread = (getattr(images[0], name)(dim=(0, 2, 3), keepdim=True) for name in ("mean", "std"))
        images = [(part - centre) / spread for part in images]
        labels = [torch.from_numpy(part).long().flatten().to(device) for part in parts[1::2]]
        return images[0], labels[0], images[1], labels[1]
    generator = torch.Generator().manual_seed(budget.seed)
    patterns = torch.randn(4, 3, budget.size, budget.size, generator=generator)
    patterns = patterns + patterns.flip(3)  # alike when flipped
    labels = torch.arange(2 * budget.made_up) % 4
    images = patterns[labels] + 1.5 * torch.randn(len(labels), 3, budget.size, budget.size, generator=generator)
    halves = images.to(device).chunk(2), labels.to(device).chunk(2)
    return halves[0][0], halves[1][0], halves[0][1], halves[1][1]


# %%
# One cell: a sampler
# -------------------
def cell(method, budget):
    """Return the potential along the run, and test accuracies of single draws and of their average."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    images, labels, test_images, test_labels = load(budget, device)
    torch.manual_seed(budget.seed)
    module = resnet18(int(labels.max()) + 1, budget.width).to(device)
    theta0 = nn.utils.parameters_to_vector(module.parameters()).detach()[None]
    potential = ModulePotential(module, images, labels, budget, torch.Generator(device=device).manual_seed(budget.seed))
    steps_per_epoch = max(1, len(images) // budget.batch)
    n_steps = budget.epochs * steps_per_epoch
    draws = sample(
        potential,
        theta0,
        sampler=METHODS[method],
        step_size=budget.learning_rate / len(images),
        schedule=StepDecay(factor=0.5, every=budget.decay_epochs * steps_per_epoch),
        temperature=budget.temperature,
        n_steps=n_steps,
        n_draws=budget.draws,
        random_state=budget.seed,
    )
    with torch.no_grad():
        blocks = range(0, len(test_images), 500)
        proba = torch.stack(
            [
                torch.cat([potential.outputs(theta, test_images[start : start + 500]).softmax(1) for start in blocks])
                for theta in draws.pooled
            ]
        )
        single = (proba.argmax(2) == test_labels).double().mean(1)
        average = (proba.mean(0).argmax(1) == test_labels).double().mean()
    curve = draws.potential_curve[:, 0].cpu().numpy()
    return {
        "curve": curve,
        "single": single.cpu().numpy(),
        "average": float(average),
        "n_params": theta0.shape[1],
        "steps": n_steps,
    }


def main(argv=None):
    """Run the experiment."""
    budget, output = parse(__doc__, Budget(), FULL, argv)
    cells = Cells(output, "resnet_cifar", budget)
    found = {method: cells(method, cell, method, budget) for method in METHODS}
    some = found["SGLD"]
    print(f"\nResNet-18 of width {budget.width}, {int(some['n_params']):,} parameters, {int(some['steps'])} steps")
    rows = [
        [
            method,
            f"{part['curve'][0]:.0f}",
            f"{part['curve'][-1]:.0f}",
            f"{100 * part['single'].mean():.1f}",
            f"{100 * part['average']:.1f}",
        ]
        for method, part in found.items()
    ]
    table(["method", "U at the start, nats", "U at the end", "test accuracy of a draw, %", "of the average, %"], rows)
    figure, ax = plt.subplots(figsize=(5.4, 4.0), layout="constrained")
    for number, (method, part) in enumerate(found.items()):
        ax.plot(np.linspace(0, int(part["steps"]), len(part["curve"])), part["curve"], label=method, **style(number))
    images = "CIFAR" if budget.cifar else "made-up images"
    ax.set(xlabel="steps", ylabel="U estimated from a minibatch, nats", title=f"ResNet-18 of width {budget.width}, {images}")
    ax.legend()
    cells.save(figure, "resnet_cifar")


if __name__ == "__main__":
    main()
