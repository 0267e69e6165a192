"""The server stays within the memory it was given."""

from __future__ import annotations

from pathlib import Path

import hotset
from processes import until
from torch.utils.data import DataLoader
from trees import equal_files

MIB = 1 << 20
SAMPLES, SIZE = 2560, 64 * 1024
CACHE = SAMPLES * SIZE // 10


def memory(pid: int) -> int:
    """Bytes that a process holds: its own pages, and those of its shared memory, mapped or not."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    own = sum(int(lines[name].split()[0]) * 1024 for name in ("RssAnon", "RssFile"))
    shared = {}
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            if str(entry.readlink()).startswith("/memfd:"):
                found = entry.stat()
                shared[found.st_ino] = found.st_blocks * 512
        except FileNotFoundError:
            continue
    return own + sum(shared.values())


def test_ten_times_the_cache_passes_through_bounded_memory(tmp_path: Path) -> None:
    place = equal_files(tmp_path / "tree", SAMPLES, SIZE)
    train = hotset.Dataset(place, cache=CACHE, decode=len)
    sampler = hotset.Sampler(train, policy="lru")
    loader = DataLoader(train, batch_size=32, sampler=sampler, collate_fn=sum)
    server = train.stats()["server"]["pid"]
    bound = CACHE + max(CACHE // 7, 64 * MIB) + 96 * SAMPLES + 64 * MIB
    most = 0
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for size in loader:
            assert size == 32 * SIZE
            most = max(most, memory(server))
    assert most <= bound, f"{most / MIB:.0f} MiB of {bound / MIB:.0f}"
    # What passed is far more than what was allowed, so the bound says something.
    assert bound < 2 * SAMPLES * SIZE
    assert train.stats()["server"]["arena"] <= CACHE + max(CACHE // 7, 64 * MIB)
    until("all leases are back", lambda: train.stats()["server"]["leases"] == 0)
