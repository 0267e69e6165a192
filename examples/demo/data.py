"""The images of the demo: a small training and test set as image files, written once below the cache folder.

They come from a folder of the user's, from Debian's package of Fashion-MNIST (downloaded and unpacked as an
ordinary user, nothing is installed), or, where there is no Debian archive, from scikit-learn's digits. The
result always has torchvision's layout: `train/<class>/<image>` and `test/<class>/<image>`.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy
from PIL import Image
from tqdm import tqdm

PACKAGE = "dataset-fashion-mnist"
INSTALLED = Path("/usr/share/datasets/fashion-mnist")
GARMENTS = ["tshirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot"]
ENDINGS = {".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"}


class DataError(Exception):
    """The images that were asked for cannot be used; the message says what to change."""


@dataclass(frozen=True)
class Images:
    """A prepared set of images."""

    name: str
    root: str
    classes: int
    train: int
    test: int
    train_bytes: int
    # Images are trained at this width and height.
    size: int


# One image still to be written: "train/<class>/<name>" and its pixels, or the file to copy.
Item = tuple[str, "numpy.typing.NDArray[numpy.uint8] | Path"]


def prepare(folder: Path | None, cache: Path, train: int, test: int) -> Images:
    """At most `train` and `test` images of `folder`, or of the built-in source, as files below `cache`."""
    cache.mkdir(parents=True, exist_ok=True)
    if folder is not None:
        return _from_folder(folder.expanduser(), cache, train, test)
    source = _fashion_mnist(cache)
    if source is None:
        print("Debian's archive cannot be reached: using scikit-learn's 1,797 digits instead.")
        return _write(cache / "digits", "digits (scikit-learn)", 28, _digits())
    items = _fashion(source, train, test)
    return _write(cache / f"fashion-mnist-{train}-{test}", "Fashion-MNIST", 28, items)


def _write(root: Path, name: str, size: int, items: Iterable[Item]) -> Images:
    """Writes all items below `root`, or finds them there; whole or not at all."""
    summary = root / "images.json"
    if summary.exists():
        return Images(**json.loads(summary.read_text()))
    partial = root.with_name(f"{root.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    train = test = train_bytes = 0
    for key, pixels in tqdm(list(items), desc="writing images", unit="image"):
        path = partial / key
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(pixels, Path):
            shutil.copyfile(pixels, path)
        else:
            Image.fromarray(pixels).save(path)
        if key.startswith("train/"):
            train, train_bytes = train + 1, train_bytes + path.stat().st_size
        else:
            test += 1
    classes = len(list((partial / "train").iterdir()))
    images = Images(name, str(root.resolve()), classes, train, test, train_bytes, size)
    (partial / "images.json").write_text(json.dumps(asdict(images), indent=2))
    shutil.rmtree(root, ignore_errors=True)
    partial.rename(root)
    return images


# --- Fashion-MNIST -----------------------------------------------------------------------------------------


def _fashion_mnist(cache: Path) -> Path | None:
    """The folder with Fashion-MNIST's four files, fetched if need be; None where that is not possible."""
    unpacked = cache / PACKAGE
    for found in (INSTALLED, unpacked / INSTALLED.relative_to("/")):
        if found.is_dir():
            return found
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        return None
    print(f"downloading Debian's package {PACKAGE} (31 MB)")
    downloads = cache / "apt"
    # Package lists of our own, for machines whose lists are missing or old; no root needed.
    (downloads / "lists/partial").mkdir(parents=True, exist_ok=True)
    lists = ["-o", f"Dir::State::lists={downloads.resolve() / 'lists'}", "-o", "APT::Sandbox::User="]
    lists += ["-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache="]
    if not _quietly(["apt-get", "-o", "APT::Sandbox::User=", "download", PACKAGE], downloads):
        _quietly(["apt-get", *lists, "update"], downloads)
        if not _quietly(["apt-get", *lists, "download", PACKAGE], downloads):
            return None
    for package in downloads.glob(f"{PACKAGE}_*.deb"):
        partial = cache / f"{PACKAGE}.partial"
        if _quietly(["dpkg-deb", "-x", str(package.resolve()), str(partial.resolve())], cache):
            partial.rename(unpacked)
            shutil.rmtree(downloads)
            return unpacked / INSTALLED.relative_to("/")
    return None


def _quietly(command: list[str], folder: Path) -> bool:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, timeout=300, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _fashion(source: Path, train: int, test: int) -> Iterator[Item]:
    for part, prefix, count in (("train", "train", train), ("test", "t10k", test)):
        # Headers of 16 and 8 bytes; then 28 x 28 bytes an image, one byte a label.
        with gzip.open(source / f"{prefix}-images-idx3-ubyte.gz") as file:
            pixels = numpy.frombuffer(file.read(), numpy.uint8, offset=16).reshape(-1, 28, 28)
        with gzip.open(source / f"{prefix}-labels-idx1-ubyte.gz") as file:
            labels = numpy.frombuffer(file.read(), numpy.uint8, offset=8)
        for number in range(min(count, len(labels))):
            yield f"{part}/{GARMENTS[labels[number]]}/{number:05}.png", pixels[number]


# --- the other sources -------------------------------------------------------------------------------------


def _digits() -> Iterator[Item]:
    from sklearn.datasets import load_digits

    digits = load_digits()
    for number, (pixels, label) in enumerate(zip(digits.images, digits.target, strict=True)):
        part = "test" if number % 5 == 0 else "train"
        # 8 x 8 pixels of 0 to 16, enlarged to about the size of a Fashion-MNIST image.
        yield f"{part}/{label}/{number:04}.png", numpy.kron((pixels * 15.9).astype(numpy.uint8), _block())


def _block() -> numpy.typing.NDArray[numpy.uint8]:
    return numpy.ones((4, 4), numpy.uint8)


def _from_folder(folder: Path, cache: Path, train: int, test: int) -> Images:
    """A copy of some of the user's images, picked and split by the hash of their names."""
    if not folder.is_dir():
        raise DataError(f"`{folder}` is not a folder: DATA must name one with `<class>/` or `train/<class>/`")
    split = (folder / "train").is_dir()
    chosen: list[Item] = []
    if split and (folder / "test").is_dir():
        for part, count in (("train", train), ("test", test)):
            chosen += _keyed(part, folder / part, _by_hash(folder / part)[:count])
    else:
        base = folder / "train" if split else folder
        found = _by_hash(base)
        tested = min(test, len(found) // 5)
        chosen += _keyed("test", base, found[:tested])
        chosen += _keyed("train", base, found[tested:][:train])
    trained, tested_classes = _classes("train", chosen), _classes("test", chosen)
    if len(trained) < 2:
        raise DataError(f"`{folder}` has images of {len(trained)} classes: DATA needs two folders of images")
    if not tested_classes:
        raise DataError(
            f"`{folder}` leaves no image to test with: DATA needs more images, or some in `test/`"
        )
    if not tested_classes <= trained:
        raise DataError(f"`{folder}` has no training image of `{', '.join(tested_classes - trained)}`")
    files = [(key, path.stat()) for key, path in chosen if isinstance(path, Path)]
    identity = repr([str(folder.resolve()), *((key, stat.st_size, stat.st_mtime_ns) for key, stat in files)])
    digest = hashlib.sha256(identity.encode()).hexdigest()[:12]
    return _write(cache / f"{folder.resolve().name}-{digest}", folder.resolve().name, 64, chosen)


def _classes(part: str, items: list[Item]) -> set[str]:
    return {key.split("/")[1] for key, _ in items if key.startswith(f"{part}/")}


def _by_hash(base: Path) -> list[Path]:
    """Images below the class folders of `base`, in an order that looks random and never changes."""
    images = [path for path in base.glob("*/**/*") if path.suffix.lower() in ENDINGS and path.is_file()]
    return sorted(images, key=lambda path: hashlib.sha256(str(path.relative_to(base)).encode()).digest())


def _keyed(part: str, base: Path, images: list[Path]) -> list[Item]:
    return [(f"{part}/{path.relative_to(base)}", path) for path in images]
