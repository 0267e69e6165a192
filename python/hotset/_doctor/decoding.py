"""How long Pillow takes to decode images, for `hotset doctor`."""

from __future__ import annotations

import io
import time
from collections.abc import Sequence


def timed(images: Sequence[bytes], seconds: float) -> tuple[float, int, str] | str:
    """Seconds of one core for an image, how many were decoded, and by what; or why nothing was."""
    try:
        from PIL import Image, UnidentifiedImageError
        from PIL import __version__ as version
    except ImportError:
        return "decoding was not measured: Pillow is not installed (`pip install hotset[images]`)"

    def decode(image: bytes) -> Image.Image:
        return Image.open(io.BytesIO(image)).convert("RGB")

    until = time.monotonic() + seconds
    computed, decoded, failed = 0.0, 0, ""
    width, height, kind = 0, 0, ""
    for number, image in enumerate(images):
        if number > 0 and time.monotonic() >= until:
            break
        try:
            if not kind:
                # The first loads the decoder, which no other does.
                decode(image)
                opened = Image.open(io.BytesIO(image))
                (width, height), kind = opened.size, opened.format or "images"
            began = time.thread_time()
            decode(image)
            computed += time.thread_time() - began
            decoded += 1
        except (OSError, UnidentifiedImageError, ValueError, Image.DecompressionBombError) as error:
            failed = failed or str(error)
    if decoded == 0:
        return f"decoding was not measured: Pillow cannot decode these images: {failed}"
    return computed / decoded, decoded, f"Pillow {version}, {kind} like {width} x {height}"
