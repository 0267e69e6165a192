"""Counts the instructions of a batch of 256 hits, in the server and in a client, by valgrind's callgrind.

Give it the paths of native modules (`python/hotset/_core.abi3.so` of two builds) to compare them. Each is run
with fewer and with more batches, and what is told is the difference, for one batch: what starts and warms up
cancels out. Counts repeat to about one in a thousand, on a busy machine too.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

BATCH, SAMPLES, SIZE = 256, 2048, 900
FEW, MANY = 16, 80
WAIT = 600.0

LOAD = """\
import importlib.util, sys
_, path, *arguments = sys.argv
spec = importlib.util.spec_from_file_location("hotset._core", path)
core = importlib.util.module_from_spec(spec)
spec.loader.exec_module(core)
"""
SERVE = LOAD + 'sys.exit(core.main(["hotset", *arguments]))'
READ = (
    LOAD
    + f"""\
import json
socket, tree, batches = arguments
client = core.Client(socket, main_pid=0, timeout={WAIT})
dataset = client.open_dataset(tree, layout="files", wait={WAIT})["dataset"]
settings = dict(dataset=dataset, cache="100%", strategy="uniform", policy="minio", seed=0)
client.open_job("hits", settings, wait={WAIT})
left = 0
for epoch in range(1 + -(-int(batches) * {BATCH} // {SAMPLES})):
    plan = client.begin_epoch("hits", epoch, rank=0, world=1, start=0, wait={WAIT})
    for start in range(0, {SAMPLES}, {BATCH}):
        if epoch > 0 and (left := left + 1) > int(batches):
            break
        ids = plan.block(start, start + {BATCH})
        batch = client.get_batch("hits", ids, rank=0, matched=True, wait={WAIT})
        views = batch.views()
        del views, batch
(job,) = json.loads(client.stats("hits", wait={WAIT}))["jobs"]
client.close()
print(json.dumps(job["total"]))
"""
)


def counted(out: Path) -> int:
    """The instructions that callgrind counted."""
    lines = out.read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(("summary:", "totals:")))


def files(tree: Path) -> Path:
    """The samples."""
    tree.mkdir()
    for number in range(SAMPLES):
        (tree / f"{number:06d}.bin").write_bytes(bytes([number % 256]) * SIZE)
    return tree


def run(native: str, tree: Path, batches: int, work: Path) -> tuple[int, int]:
    """The instructions of a server and a client that reads so many batches of hits."""
    work.mkdir(mode=0o700)
    outs = work / "server.out", work / "client.out"
    under = [["valgrind", "--tool=callgrind", "--quiet", f"--callgrind-out-file={out}"] for out in outs]
    read(native, tree, batches, work, *under)
    return counted(outs[0]), counted(outs[1])


def read(
    native: str,
    tree: Path,
    batches: int,
    work: Path,
    serving: Sequence[str] = (),
    reading: Sequence[str] = (),
) -> dict[str, int]:
    """Has a client read so many batches of hits, both under a command if there is one; what was counted."""
    python = [sys.executable, "-I", "-S", "-c"]
    environment = os.environ | {"HOTSET_RUNTIME_DIR": str(work), "XDG_CACHE_HOME": str(work / "cache")}
    socket = work / "s"
    serve = ["serve", "--socket", str(socket), "--concurrency", "2"]
    with (work / "log").open("w") as log:
        server = subprocess.Popen(
            [*serving, *python, SERVE, native, *serve], env=environment, stdout=log, stderr=log
        )
        try:
            until = time.monotonic() + WAIT
            while not socket.exists() and time.monotonic() < until and server.poll() is None:
                time.sleep(0.1)
            command = [*reading, *python, READ, native, str(socket), str(tree), str(batches)]
            said = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE).stdout
        finally:
            server.terminate()
            server.wait(WAIT)
    return dict(json.loads(said))


def main() -> None:
    """See the module."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("native", nargs="+", help="a native module, `_core.abi3.so` of a build")
    arguments.add_argument("--json", action="store_true", help="print JSON instead of a table")
    asked = arguments.parse_args()
    if shutil.which("valgrind") is None:
        sys.exit("valgrind is missing: install it (Debian: apt-get install valgrind)")
    found = []
    with tempfile.TemporaryDirectory(prefix="hs-") as place:
        tree = files(Path(place) / "tree")
        for at, native in enumerate(asked.native):
            few = run(native, tree, FEW, Path(place) / f"{at}-few")
            many = run(native, tree, MANY, Path(place) / f"{at}-many")
            server, client = ((more - less) // (MANY - FEW) for less, more in zip(few, many, strict=True))
            found.append({"native": native, "server": server, "client": client, "both": server + client})
    if asked.json:
        print(json.dumps(found, indent=2))
        return
    print(f"instructions of a batch of {BATCH} hits\n")
    print(f"{'server':>12} {'client':>12} {'both':>12}  native module")
    for line in found:
        change = f"  ({line['both'] / found[0]['both'] - 1:+.1%})" if line is not found[0] else ""
        print(f"{line['server']:>12,} {line['client']:>12,} {line['both']:>12,}  {line['native']}{change}")


if __name__ == "__main__":
    main()
