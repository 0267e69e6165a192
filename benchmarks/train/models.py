"""The papers' four models for small images, written out, since the machine with the GPU may lack torchvision.

All keep the first stages at 32 x 32: a 3 x 3 stem, no pooling after it, and strides of 1 where the ImageNet
versions have 2, until an 8 x 8 or 4 x 4 map is left. Images of 64 x 64 and more are halved by the stem.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional


def _convolution(inside: int, outside: int, size: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    layer = nn.Conv2d(inside, outside, size, stride, size // 2, groups=groups, bias=False)
    return [layer, nn.BatchNorm2d(outside)]


def _stem(side: int) -> int:
    """The stride of the first layer."""
    return 2 if side >= 64 else 1


class _Basic(nn.Module):
    """Two 3 x 3 convolutions around a shortcut."""

    widening = 1

    def __init__(self, inside: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *_convolution(inside, width, 3, stride), nn.ReLU(inplace=True), *_convolution(width, width, 3)
        )
        same = stride == 1 and inside == width
        self.shortcut = nn.Identity() if same else nn.Sequential(*_convolution(inside, width, 1, stride))

    def forward(self, images: Tensor) -> Tensor:
        return functional.relu(self.body(images) + self.shortcut(images), inplace=True)


class _Bottleneck(nn.Module):
    """A 3 x 3 convolution between two of 1 x 1, around a shortcut."""

    widening = 4

    def __init__(self, inside: int, width: int, stride: int) -> None:
        super().__init__()
        outside = width * self.widening
        self.body = nn.Sequential(
            *_convolution(inside, width, 1),
            nn.ReLU(inplace=True),
            *_convolution(width, width, 3, stride),
            nn.ReLU(inplace=True),
            *_convolution(width, outside, 1),
        )
        same = stride == 1 and inside == outside
        self.shortcut = nn.Identity() if same else nn.Sequential(*_convolution(inside, outside, 1, stride))

    def forward(self, images: Tensor) -> Tensor:
        return functional.relu(self.body(images) + self.shortcut(images), inplace=True)


def _resnet(
    block: type[_Basic] | type[_Bottleneck], depths: tuple[int, ...], classes: int, side: int
) -> nn.Module:
    layers = [*_convolution(3, 64, 3, _stem(side)), nn.ReLU(inplace=True)]
    inside = 64
    for stage, depth in enumerate(depths):
        for place in range(depth):
            width = 64 << stage
            layers.append(block(inside, width, 2 if stage and not place else 1))
            inside = width * block.widening
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, classes))


class _Inverted(nn.Module):
    """MobileNetV2's block: widen, convolve each channel by itself, narrow; a shortcut where shapes agree."""

    def __init__(self, inside: int, outside: int, stride: int, widening: int) -> None:
        super().__init__()
        width = inside * widening
        widen = [*_convolution(inside, width, 1), nn.ReLU6(inplace=True)] if widening > 1 else []
        self.body = nn.Sequential(
            *widen,
            *_convolution(width, width, 3, stride, groups=width),
            nn.ReLU6(inplace=True),
            *_convolution(width, outside, 1),
        )
        self.same = stride == 1 and inside == outside

    def forward(self, images: Tensor) -> Tensor:
        made: Tensor = self.body(images)
        return made + images if self.same else made


def _mobilenet(classes: int, side: int) -> nn.Module:
    layers = [*_convolution(3, 32, 3, _stem(side)), nn.ReLU6(inplace=True)]
    inside = 32
    # Widening, channels, depth, stride: MobileNetV2's table with the first strides at 1.
    for widening, outside, depth, stride in (
        (1, 16, 1, 1),
        (6, 24, 2, 1),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ):
        for place in range(depth):
            layers.append(_Inverted(inside, outside, stride if not place else 1, widening))
            inside = outside
    layers += [*_convolution(inside, 1280, 1), nn.ReLU6(inplace=True)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, classes))


class _Shuffled(nn.Module):
    """ShuffleNetV2's unit: half of the channels are worked on, then the halves are shuffled."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.halved = stride == 1
        half = outside // 2
        into = inside // 2 if self.halved else inside
        self.body = nn.Sequential(
            *_convolution(into, half, 1),
            nn.ReLU(inplace=True),
            *_convolution(half, half, 3, stride, groups=half),
            *_convolution(half, half, 1),
            nn.ReLU(inplace=True),
        )
        self.side: nn.Module = nn.Identity()
        if not self.halved:
            self.side = nn.Sequential(
                *_convolution(inside, inside, 3, stride, groups=inside),
                *_convolution(inside, half, 1),
                nn.ReLU(inplace=True),
            )

    def forward(self, images: Tensor) -> Tensor:
        if self.halved:
            left, right = images.chunk(2, dim=1)
        else:
            left = right = images
        joined = torch.cat([self.side(left), self.body(right)], dim=1)
        return functional.channel_shuffle(joined, 2)


def _shufflenet(classes: int, side: int) -> nn.Module:
    layers = [*_convolution(3, 24, 3, _stem(side)), nn.ReLU(inplace=True)]
    inside = 24
    for outside, depth in ((116, 4), (232, 8), (464, 4)):
        for place in range(depth):
            layers.append(_Shuffled(inside, outside, 1 if place else 2))
            inside = outside
    layers += [*_convolution(inside, 1024, 1), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1024, classes))


MODELS: dict[str, Callable[[int, int], nn.Module]] = {
    "resnet18": lambda classes, side: _resnet(_Basic, (2, 2, 2, 2), classes, side),
    "resnet50": lambda classes, side: _resnet(_Bottleneck, (3, 4, 6, 3), classes, side),
    "mobilenet": _mobilenet,
    "shufflenet": _shufflenet,
}
"""Each makes a model for that many classes and images so many pixels high. MobileNet is V2, ShuffleNet V2."""
