"""The snippets of docs/pytorch.md and docs/settings.md, each run as it stands."""

from __future__ import annotations

import inspect
import re
import warnings
from pathlib import Path
from typing import Any

import hotset
import hotset._client.settings
import lightning
import pytest
import torch
import torch.nn.functional as F
import transformers
from accelerate import Accelerator
from PIL import Image
from torch.utils.data import DataLoader, default_collate
from trees import content

DOCS = Path(__file__).parents[2] / "docs"


def snippets(page: str) -> list[str]:
    """The Python of a page, piece by piece."""
    return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


SNIPPETS = snippets("pytorch.md")
SETTINGS = snippets("settings.md")
SAMPLES = 24

pytestmark = pytest.mark.filterwarnings("ignore")


def pixels(image: Image.Image) -> torch.Tensor:
    """Four numbers of an image."""
    return torch.tensor(list(image.resize((2, 2)).convert("L").tobytes()), dtype=torch.float32) / 255.0


@pytest.fixture
def names(tmp_path: Path) -> dict[str, Any]:
    """What the snippets speak of."""
    for number in range(SAMPLES):
        folder = tmp_path / "images" / f"class-{number % 3}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.frombytes("RGB", (8, 8), content(str(number), 192)).save(folder / f"{number:03d}.png")
    train = hotset.ImageFolder(tmp_path / "images", pixels, with_ids=True)
    sampler = hotset.Sampler(train)
    model = torch.nn.Linear(4, 3)

    def replayed(images: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor | None) -> torch.Tensor:
        loss = F.cross_entropy(model(images), labels, reduction="none")
        (loss if weights is None else loss * weights).mean().backward()
        return loss.detach()

    return {
        **{"hotset": hotset, "torch": torch, "F": F, "DataLoader": DataLoader, "lightning": lightning},
        **{"Accelerator": Accelerator, "backend": "eager", "device": torch.device("cpu")},
        **{"transformers": transformers, "default_collate": default_collate},
        "few": {
            **{"output_dir": str(tmp_path / "out"), "use_cpu": True, "per_device_train_batch_size": 8},
            **{"report_to": [], "disable_tqdm": True, "save_strategy": "no"},
        },
        **{"place": tmp_path / "images", "transform": pixels, "replayed": replayed},
        **{"train": train, "sampler": sampler, "model": model},
        "loader": DataLoader(train, 8, sampler=sampler),
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        "quiet": {
            **{"accelerator": "cpu", "logger": False, "enable_progress_bar": False},
            **{"enable_checkpointing": False, "enable_model_summary": False},
        },
    }


@pytest.mark.parametrize("snippet", SNIPPETS, ids=[snippet.splitlines()[0][:40] for snippet in SNIPPETS])
def test_a_snippet_trains_and_reports_every_sample(names: dict[str, Any], snippet: str) -> None:
    if "logits" in snippet:
        # No loop of their own: one batch of what they are about.
        names["ids"] = torch.tensor([names["train"][number][2] for number in range(4)])
        list(names["sampler"])
        masks = torch.randint(0, 3, (4, 5, 6))
        shape = (4, 3, 5, 6) if "masks" in snippet else (4, 7, 3)
        tokens = torch.tensor([[0, 1, 2, 1, 0, -100, -100]] * 4)
        names |= {"logits": torch.randn(shape, requires_grad=True), "masks": masks, "tokens": tokens}
    exec(compile(snippet, "docs/pytorch.md", "exec"), names)
    epochs = names["train"].stats()["epochs"]
    reported = [epoch["reported"] for epoch in epochs]
    # An optimizer, or a Trainer, has forgotten the gradients.
    stepped = any(word in snippet for word in ("logits", "optimizer", "Trainer"))
    assert names["model"].weight.grad is not None or stepped
    assert sum(reported) == expected(snippet)
    assert all(epoch["rejected_scores"] == 0 for epoch in epochs)


def expected(snippet: str) -> int:
    """Samples that a snippet reports, as the server counts them."""
    if "logits" in snippet:
        return 4
    if "load_state_dict" in snippet:
        # An epoch that goes on in its middle is one: two batches, one after the stop, then a whole epoch.
        return 2 * SAMPLES
    if "random_split" in snippet:
        return 2 * 16
    twice = any(word in snippet for word in ("range(2)", "max_epochs=2", "num_train_epochs=2"))
    return SAMPLES * (2 if twice else 1)


def test_there_is_a_snippet_of_everything_the_page_promises() -> None:
    assert len(SNIPPETS) == 18
    words = ("autocast", "/ 4).backward", "torch.compile", "randperm", "masks", "tokens", "Callback", "Hook")
    words += ("epoch_length", "Mixin", "WeightedRandomSampler", "batches()")
    for word in words:
        assert any(word in snippet for snippet in SNIPPETS), word


@pytest.mark.parametrize("snippet", SETTINGS, ids=[snippet.splitlines()[0][:40] for snippet in SETTINGS])
def test_a_setting_is_taken_as_its_page_writes_it(names: dict[str, Any], snippet: str) -> None:
    exec(compile(snippet, "docs/settings.md", "exec"), {**names, "warnings": warnings})


def test_every_argument_of_datasets_and_samplers_is_on_the_page() -> None:
    page = (DOCS / "settings.md").read_text()
    for made in (hotset.Dataset, hotset.Sampler):
        for name in inspect.signature(made).parameters:
            assert name in ("place", "dataset", "decode") or f"`{name}=`" in page, name
    for variable in re.findall(r"`(HOTSET[A-Z_]*)`", hotset._client.settings.__doc__ or ""):
        assert variable == "HOTSET_RUN" or f"`{variable}" in page, variable
