"""Train a small ResNet as torchvision's references do: SGD, momentum, a schedule."""

import torch
import wrong_lowerings
from torch import Tensor, nn
from torch.nn import functional

wrong_lowerings.install(torch.ops.aten.le.Scalar)
torch.manual_seed(0)


class Block(nn.Module):
    """The basic block of torchvision's ResNet."""

    def __init__(self, width: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.downsample = nn.Sequential(
            nn.Conv2d(width, out, 1, stride, bias=False), nn.BatchNorm2d(out)
        )

    def forward(self, x: Tensor) -> Tensor:
        inner = functional.relu(self.bn1(self.conv1(x)))
        inner = self.bn2(self.conv2(inner))
        return functional.relu(inner + self.downsample(x))


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU()
        )
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.blocks = nn.Sequential(Block(8, 8, 1), Block(8, 16, 2))
        self.fc = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(self.pool(self.stem(x)))
        result: Tensor = self.fc(functional.adaptive_avg_pool2d(x, 1).flatten(1))
        return result


resnet = ResNet().train()
model = torch.compile(resnet)
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
optimizer = torch.optim.SGD(
    resnet.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4, nesterov=True
)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
step = torch.compile(optimizer.step)
for _ in range(2):
    images, labels = torch.randn(4, 3, 32, 32), torch.randint(5, (4,))
    loss = criterion(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    step()
    schedule.step()
raise SystemExit("stands for a check of the model that fails")
