"""Hotset keeps the samples your model still learns from close to the GPU.

    import hotset
    from torch.utils.data import DataLoader

    train = hotset.ImageFolder("data/train", cache="20%", with_ids=True)
    sampler = hotset.Sampler(train)
    loader = DataLoader(train, batch_size=256, sampler=sampler, num_workers=6)

Importing it imports neither torch nor Pillow; `Sampler` needs torch and is loaded when first named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._client.server import connect, stop_private
from ._core import Client, __version__
from ._dataset.dataset import Dataset
from ._dataset.images import ImageFolder
from ._dataset.manifest import Manifest
from ._dataset.shards import Shards
from .errors import (
    ChangedError,
    Error,
    HotsetWarning,
    InternalError,
    InvalidError,
    LostError,
    UnavailableError,
)

if TYPE_CHECKING:
    from ._doctor.diagnosis import Diagnosis
    from ._doctor.doctor import doctor
    from ._sampler.sampler import Sampler

__all__ = [
    "ChangedError",
    "Client",
    "Dataset",
    "Diagnosis",
    "Error",
    "HotsetWarning",
    "ImageFolder",
    "InternalError",
    "InvalidError",
    "LostError",
    "Manifest",
    "Sampler",
    "Shards",
    "UnavailableError",
    "__version__",
    "connect",
    "doctor",
    "stop_private",
]


def __getattr__(name: str) -> Any:
    if name == "Sampler":
        from ._sampler.sampler import Sampler

        return Sampler
    if name == "doctor":
        from ._doctor.doctor import doctor

        return doctor
    if name == "Diagnosis":
        from ._doctor.diagnosis import Diagnosis

        return Diagnosis
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
