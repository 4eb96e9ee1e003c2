"""The judge: a small network that names the emoji in a picture, trained on augmented renders."""

from __future__ import annotations

import math
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_WIDTHS = (32, 64, 96, 128, 192)


class Judge(nn.Module):
    """Pictures [B, 3, 64, 64] in [-1, 1] to a score [B, classes] for each emoji."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        before = 3
        for width in _WIDTHS:
            layers += [nn.Conv2d(before, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
            layers += [nn.MaxPool2d(2)]
            before = width
        self.layers = nn.Sequential(*layers)
        self.out = nn.Linear(4 * before, classes)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.out(self.layers(x).flatten(1))
        return scores


def augmented(pictures: Tensor, generator: torch.Generator) -> Tensor:
    """Pictures [B, 3, 64, 64] turned up to 12°, 0.8 to 1.15 times as large, moved up to 5 pixels, with other light
    and colour strength, blurred and noisy."""
    b, device = len(pictures), pictures.device

    def drawn(low: float, high: float) -> Tensor:
        return torch.rand(b, generator=generator, device=device) * (high - low) + low

    angle, size = drawn(-12, 12) * math.pi / 180, drawn(0.8, 1.15)
    cos, sin, moved = angle.cos() / size, angle.sin() / size, 5 / 32
    rows = torch.stack((cos, -sin, drawn(-moved, moved), sin, cos, drawn(-moved, moved)), dim=1)
    grid = F.affine_grid(rows.view(b, 2, 3), list(pictures.shape), align_corners=False)
    x = 1 - F.grid_sample(1 - pictures, grid, align_corners=False)  # white comes in from outside
    blurred = F.avg_pool2d(F.pad(x, (1, 1, 1, 1), mode="replicate"), 3, stride=1)
    mix, colour, contrast, light, noisy = (
        drawn(*bounds).view(b, 1, 1, 1) for bounds in ((0, 1), (0.7, 1.3), (0.8, 1.2), (-0.15, 0.15), (0, 0.15))
    )
    x = torch.lerp(x, blurred, mix)
    grey = x.mean(1, keepdim=True)
    x = (grey + (x - grey) * colour) * contrast + light
    noise = torch.randn(x.shape, generator=generator, device=device)
    return (x + noise * noisy).clamp(-1, 1)


def train(pictures: Tensor, steps: int, rows: int, seed: int) -> Judge:
    """A judge of the emoji `pictures` [N, 3, 64, 64], whose place in the row is their class."""
    device = pictures.device
    generator = torch.Generator(device).manual_seed(seed)
    judge = Judge(len(pictures)).to(device)
    optimiser = torch.optim.AdamW(judge.parameters(), lr=2e-3, weight_decay=0.02)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 2e-3, total_steps=steps)
    for _ in range(steps):
        labels = torch.randint(len(pictures), (rows,), generator=generator, device=device)
        scores = judge(augmented(pictures[labels], generator))
        loss = F.cross_entropy(scores, labels, label_smoothing=0.05)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        schedule.step()
    return judge.eval()


@torch.inference_mode()
def accuracy(judge: Judge, pictures: Tensor, each: int, seed: int) -> float:
    """The share of `each` fresh augmented renders of every emoji that the judge names rightly."""
    generator = torch.Generator(pictures.device).manual_seed(seed)
    labels = torch.arange(len(pictures), device=pictures.device)
    right = sum(
        int((judge(augmented(pictures, generator)).argmax(1) == labels).sum())
        for _ in range(each)
    )  # fmt: skip
    return right / (each * len(pictures))


def save(judge: Judge, file: Path) -> None:
    """Its tensors in float16."""
    from safetensors.torch import save_file

    save_file({name: t.half().cpu().contiguous() for name, t in judge.state_dict().items()}, file)


def load(file: Path) -> Judge:
    """The judge that `save` wrote, in float32, ready to judge."""
    from safetensors.torch import load_file

    tensors = load_file(file)
    judge = Judge(len(tensors["out.bias"]))
    judge.load_state_dict({name: t.float() if t.is_floating_point() else t for name, t in tensors.items()})
    return judge.eval()
