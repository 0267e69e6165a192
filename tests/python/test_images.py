"""`ImageFolder` is torchvision's."""

from __future__ import annotations

from pathlib import Path

import hotset
import pytest
from PIL import Image
from torchvision import transforms
from torchvision.datasets import ImageFolder as Torchvision


@pytest.fixture
def awkward(tmp_path: Path) -> Path:
    """A tree with everything that has been listed wrongly before."""
    root = tmp_path / "root"
    shade = 0
    for name in (
        "b/10.png",
        "b/9.png",
        "b/2.JPG",
        "b/.hidden.png",
        "b/a-b.png",
        "b/a.png",
        "b/a/z.png",
        "b/a b/c.png",
        "b/deep/er/x.jpeg",
        "B/upper.bmp",
        "a/ümlaut.png",
        "a/zz.png",
        "Z/1.tif",
        "Z/1.tiff",
        "Z/2.ppm",
        "Z/3.pgm",
        "Z/4.webp",
        "ä/1.png",
    ):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        shade += 9
        mode = "L" if path.suffix == ".pgm" else "RGB"
        Image.new(mode, (5, 4), shade if mode == "L" else (shade, 255 - shade, shade // 2)).save(path)
    palette = Image.new("P", (6, 6), 3)
    palette.putpalette(list(range(48)))
    palette.save(root / "a" / "palette.png")
    Image.new("RGBA", (3, 3), (9, 8, 7, 100)).save(root / "a" / "alpha.png")
    (root / "a" / "notes.txt").write_text("no image")
    (root / "a" / "png").write_text("no image")
    (root / "loose.png").write_bytes(b"below no class")
    (root / "linked").symlink_to(root / "Z", target_is_directory=True)
    (root / "a" / "linked.png").symlink_to(root / "a" / "zz.png")
    return root


def test_order_labels_and_classes_are_torchvisions(awkward: Path) -> None:
    ours, theirs = hotset.ImageFolder(awkward), Torchvision(str(awkward))
    assert ours.classes == theirs.classes
    assert ours.class_to_idx == theirs.class_to_idx
    assert ours.samples == theirs.samples
    assert ours.imgs == theirs.imgs
    assert ours.targets == theirs.targets
    assert len(ours) == len(theirs)
    assert ours.root == str(awkward)


def test_images_are_torchvisions_pixel_for_pixel(awkward: Path) -> None:
    ours, theirs = hotset.ImageFolder(awkward), Torchvision(str(awkward))
    for number in range(len(theirs)):
        (image, label), (expected, target) = ours[number], theirs[number]
        assert (image.mode, image.size, label) == (expected.mode, expected.size, target)
        assert image.tobytes() == expected.tobytes()


def test_transforms_are_applied_as_torchvision_does(awkward: Path) -> None:
    both = {"transform": transforms.ToTensor(), "target_transform": str}
    ours, theirs = hotset.ImageFolder(awkward, **both), Torchvision(str(awkward), **both)
    (image, label), (expected, target) = ours[5], theirs[5]
    assert label == target
    assert bool((image == expected).all())


def test_ids_come_third_when_asked_for(awkward: Path) -> None:
    dataset = hotset.ImageFolder(awkward, with_ids=True)
    assert [sample[2] for sample in dataset.__getitems__([4, 0, 4])] == [4, 0, 4]
    assert dataset[-1][2] == len(dataset) - 1


def test_a_loader_gets_the_bytes_of_the_file(awkward: Path) -> None:
    dataset = hotset.ImageFolder(awkward, loader=bytes)
    for number in (0, 7):
        assert dataset[number][0] == Path(dataset.samples[number][0]).read_bytes()


def test_a_file_that_is_no_image_is_named(tmp_path: Path) -> None:
    (tmp_path / "root" / "a").mkdir(parents=True)
    (tmp_path / "root" / "a" / "broken.png").write_bytes(b"this is text")
    with pytest.raises(hotset.InvalidError, match=r"sample 0 \(`a/broken\.png`\): its 12 bytes") as caught:
        hotset.ImageFolder(tmp_path / "root")[0]
    assert (caught.value.sample, caught.value.key) == (0, "a/broken.png")


def test_importing_hotset_imports_neither_torch_nor_pillow() -> None:
    import subprocess
    import sys

    script = "import sys, hotset; sys.exit(any(name in sys.modules for name in ('torch', 'PIL', 'numpy')))"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
