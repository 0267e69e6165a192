"""One training step: crop, forward, a loss for each sample, backward, and SGD with momentum.

On a GPU the whole step is recorded once as a CUDA graph and replayed. A step of a small model is some 500
short kernels, and queueing them takes a processor longer than the GPU needs to run them; replaying takes one
call, so that many runs share one GPU without waiting for processors.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from .pixels import Pixels, Scale, cropped
from .transforms import TRANSFORMS


class Momentum:
    """SGD with Nesterov's momentum and weight decay, on all parameters at once, recordable in a graph."""

    def __init__(self, parameters: list[nn.Parameter], momentum: float, decay: float) -> None:
        self.parameters: list[Tensor] = [*parameters]
        self.velocities = [torch.zeros_like(parameter) for parameter in parameters]
        self.rate = torch.zeros((), device=parameters[0].device)
        """The learning rate; a tensor, since a graph has no other way to hear of a new one."""
        self._momentum, self._decay = momentum, decay

    @torch.no_grad()
    def step(self) -> None:
        """Moves the parameters along their gradients, which are used up."""
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        torch._foreach_add_(gradients, self.parameters, alpha=self._decay)
        torch._foreach_mul_(self.velocities, self._momentum)
        torch._foreach_add_(self.velocities, gradients)
        torch._foreach_add_(gradients, self.velocities, alpha=self._momentum)
        torch._foreach_mul_(gradients, -self.rate)
        torch._foreach_add_(self.parameters, gradients)


class Step:
    """Trains `model` on batches of one size, given by ids and weights.

    `scale` is that of `pixels` where it is not given.
    """

    def __init__(
        self,
        model: nn.Module,
        pixels: Pixels,
        batch: int,
        graph: bool,
        half: bool,
        augment: bool = True,
        transform: str = "",
        scale: Scale | None = None,
    ) -> None:
        self.model, self.pixels = model, pixels
        self.scale = pixels.scale() if scale is None else scale
        self._padded = pixels.padded() if augment else None
        self._device = pixels.labels.device
        self._half = half
        self._transform = TRANSFORMS[transform] if transform else None
        self.optimizer = Momentum([*model.parameters()], momentum=0.9, decay=5e-4)
        self._ids = torch.zeros(batch, dtype=torch.int64, device=self._device)
        self._weights = torch.ones(batch, device=self._device)
        self._chosen = torch.ones(batch, dtype=torch.bool, device=self._device)
        self._losses = self._weights
        self._graph = self._recorded() if graph else None

    def __call__(
        self, ids: Tensor, weights: Tensor | None, rate: float, chosen: Tensor | None = None
    ) -> Tensor:
        """One step; the losses of the batch before weights, in memory of their own.

        `chosen` says which images are transformed; all without it, if there is a transform.
        """
        self._ids.copy_(ids, non_blocking=True)
        if weights is None:
            self._weights.fill_(1.0)
        else:
            self._weights.copy_(weights, non_blocking=True)
        if chosen is not None:
            self._chosen.copy_(chosen, non_blocking=True)
        self.optimizer.rate.fill_(rate)
        if self._graph is None:
            self._train()
        else:
            self._graph.replay()
        # The next replay writes to the same place.
        return self._losses.clone()

    def images(self, ids: Tensor) -> Tensor:
        """Training images, cropped and mirrored at random, as the model takes them."""
        pixels = self.pixels
        raw = pixels.images[ids] if self._padded is None else cropped(self._padded, pixels.side, ids)
        return self.scale(raw)

    def output(self, images: Tensor) -> Tensor:
        """What the model makes of them."""
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._half):
            made: Tensor = self.model(images)
        return made.float()

    def _train(self) -> None:
        labels, images = self.pixels.labels[self._ids], self.images(self._ids)
        if self._transform is not None:
            images = self._transform(images, self._chosen)
        self._forget_gradients()
        losses = functional.cross_entropy(self.output(images), labels, reduction="none")
        (losses * self._weights).mean().backward()
        self.optimizer.step()
        self._losses = losses.detach()

    def _forget_gradients(self) -> None:
        for parameter in self.optimizer.parameters:
            parameter.grad = None

    def _recorded(self) -> torch.cuda.CUDAGraph:
        """The step as a graph. Steps made to get there leave no trace in the model."""
        values = [*self.model.parameters(), *self.model.buffers(), *self.optimizer.velocities]
        before = [value.detach().clone() for value in values]
        beside = torch.cuda.Stream()
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            # Lets cuDNN choose its kernels, which it cannot while a graph is recorded.
            for _ in range(3):
                self._train()
        torch.cuda.current_stream().wait_stream(beside)
        # The gradients of a replay lie in the graph's own memory: none may be there before.
        self._forget_gradients()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._train()
        with torch.no_grad():
            for value, old in zip(values, before, strict=True):
                value.copy_(old)
        return graph


class FedStep(Step):
    """The same for images that are brought from outside, batch after batch, instead of lying here by id."""

    def __init__(
        self, model: nn.Module, side: int, batch: int, graph: bool, half: bool, scale: Scale
    ) -> None:
        device = scale.mean.device
        room = torch.zeros((batch, side, side, 3), dtype=torch.uint8, device=device)
        labels = torch.zeros(batch, dtype=torch.int64, device=device)
        super().__init__(model, Pixels(room, labels, ""), batch, graph, half, scale=scale)
        self._every = torch.arange(batch, device=device)

    def train(self, images: Tensor, labels: Tensor, weights: Tensor | None, rate: float) -> Tensor:
        """One step with `images`, [batch, side, side, 3] bytes; the losses, as of `Step`."""
        assert self._padded is not None, "images are cropped"
        edge = (self._padded.shape[1] - self.pixels.side) // 2
        self._padded[:, edge:-edge, edge:-edge].copy_(images, non_blocking=True)
        self.pixels.labels.copy_(labels, non_blocking=True)
        return self(self._every, weights, rate)


@torch.inference_mode()
def losses_of(
    model: nn.Module, pixels: Pixels, scale: Scale, ids: Tensor, half: bool, size: int = 2000
) -> tuple[Tensor, Tensor]:
    """Loss of samples as they are, and the place of their class among the model's choices, from 0 on."""
    training = model.training
    model.eval()
    losses, ranks = [], []
    for some in ids.split(size):
        with torch.autocast(pixels.labels.device.type, torch.bfloat16, enabled=half):
            output = model(scale(pixels.images[some]))
        labels = pixels.labels[some]
        output = output.float()
        losses.append(functional.cross_entropy(output, labels, reduction="none"))
        ranks.append((output > output.gather(1, labels[:, None])).sum(1))
    model.train(training)
    return torch.cat(losses), torch.cat(ranks)
