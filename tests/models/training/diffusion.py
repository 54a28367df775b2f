"""Train the denoiser of a diffusion model: a small U-Net with time and attention."""

import math

import torch
import wrong_lowerings
from torch import Tensor, nn
from torch.nn import functional

wrong_lowerings.install(torch.ops.aten.avg_pool2d_backward.default)
torch.manual_seed(0)
WIDTH, STEPS = 16, 100


def embed(time: Tensor) -> Tensor:
    """Embed time steps (n,) as sines and cosines (n, WIDTH)."""
    rates = torch.exp(torch.arange(WIDTH // 2) * (-math.log(10000) / (WIDTH // 2)))
    angles = time[:, None] * rates
    return torch.cat([angles.sin(), angles.cos()], -1)


class Residual(nn.Module):
    """A residual block that adds the embedded time."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(4, width), nn.GroupNorm(4, out)
        self.conv1 = nn.Conv2d(width, out, 3, padding=1)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1)
        self.time, self.skip = nn.Linear(WIDTH, out), nn.Conv2d(width, out, 1)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        inner = self.conv1(functional.silu(self.norm1(x)))
        inner = inner + self.time(functional.silu(time))[:, :, None, None]
        result: Tensor = self.conv2(functional.silu(self.norm2(inner))) + self.skip(x)
        return result


class Attention(nn.Module):
    """Self-attention between the places of an image."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.out = nn.GroupNorm(4, width), nn.Linear(width, width)
        self.qkv = nn.Linear(width, 3 * width)

    def forward(self, x: Tensor) -> Tensor:
        places = self.norm(x).flatten(2).transpose(1, 2)
        query, key, value = self.qkv(places).chunk(3, -1)
        scores = query @ key.transpose(1, 2) / math.sqrt(x.shape[1])
        mixed = scores.softmax(-1) @ value
        result: Tensor = x + self.out(mixed).transpose(1, 2).reshape(x.shape)
        return result


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enter, self.leave = (
            nn.Conv2d(3, WIDTH, 3, padding=1),
            nn.Conv2d(WIDTH, 3, 1),
        )
        self.down, self.middle = Residual(WIDTH, WIDTH), Attention(WIDTH)
        self.up = Residual(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        time = embed(time)
        outer = self.down(self.enter(x), time)
        inner = self.middle(functional.avg_pool2d(outer, 2))
        inner = functional.interpolate(inner, scale_factor=2.0, mode="nearest")
        result: Tensor = self.leave(self.up(torch.cat([inner, outer], 1), time))
        return result


model = UNet().train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
kept = torch.cumprod(1 - torch.linspace(1e-4, 0.02, STEPS), 0)


@torch.compile
def loss_of(images: Tensor, noise: Tensor, time: Tensor) -> Tensor:
    part = kept[time][:, None, None, None]
    noisy = part.sqrt() * images + (1 - part).sqrt() * noise
    return functional.mse_loss(model(noisy, time), noise)


for _ in range(2):
    images = torch.rand(2, 3, 8, 8) * 2 - 1
    loss = loss_of(images, torch.randn_like(images), torch.randint(STEPS, (2,)))
    loss.backward()  # type: ignore[no-untyped-call]
    torch.compile(optimizer.step)()
    optimizer.zero_grad(set_to_none=True)
raise SystemExit("stands for a check of the model that fails")
