"""Runs one arm behind the proxy and notes what each of its epochs came to."""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.peers import environments, tree
from benchmarks.peers.arms import Arm
from benchmarks.peers.proxy import Proxy
from benchmarks.peers.setting import Setting

SECONDS = 180.0
"""An epoch may take, and the start of an arm; the slowest takes a third of it."""
LOOK = 1.0
"""Seconds between two looks at memory."""


@dataclass
class Epoch:
    """What was told, and what was seen from outside."""

    seconds: float
    counts: dict[str, int]
    """Of the proxy."""
    cpu: float
    memory: int
    """The most so far."""
    figures: dict[str, Any]


@dataclass
class Outcome:
    """One arm in one repetition."""

    arm: str
    layout: str
    kind: str
    share: str
    repetition: int
    version: str = ""
    steady: int = 1
    settings: dict[str, Any] = field(default_factory=dict)
    epochs: list[Epoch] = field(default_factory=list)
    failed: str = ""
    """In one line."""
    errors: str = ""
    """The end of what a failed arm wrote."""


def run(arm: Arm, setting: Setting, proxy: Proxy, outcome: Outcome) -> None:
    """Fills `outcome` in; a failure is part of it."""
    outcome.steady = arm.steady
    python = Path(sys.executable)
    try:
        if arm.feed == "hotset":
            import hotset

            outcome.version = hotset.__version__
        else:
            outcome.version = environments.version(arm.feed)
            python = environments.python_of(arm.feed)
    except environments.MissingError as error:
        outcome.failed = f"not installed: {error}"
        return
    with tempfile.TemporaryDirectory(prefix="hs-peer-", ignore_cleanup_errors=True) as folder:
        _run(python, setting, Path(folder), proxy, outcome)


def _run(python: Path, setting: Setting, folder: Path, proxy: Proxy, outcome: Outcome) -> None:
    setting = Setting(**asdict(setting) | {"folder": str(folder)})
    told, said = folder / "setting.json", folder / "errors"
    setting.write(told)
    reading, writing = os.pipe()
    with said.open("wb") as errors:
        process = subprocess.Popen(
            [str(python), "-m", "benchmarks.peers.train", str(told), str(writing)],
            cwd=environments.ROOT,
            env=_environment(setting),
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
            pass_fds=(writing,),
            start_new_session=True,
        )
    os.close(writing)
    try:
        _follow(process, reading, proxy, outcome, setting.epochs)
    except TimeoutError as error:
        outcome.failed = str(error)
    finally:
        os.close(reading)
        # It has its workers and servers to end, or writes why it failed.
        tree.end(process, patience=0.0 if outcome.failed else 30.0)
    if not outcome.failed and len(outcome.epochs) < setting.epochs:
        outcome.failed = reason(said.read_text(errors="replace"))
    if outcome.failed:
        outcome.errors = said.read_text(errors="replace")[-8000:]


def _follow(
    process: subprocess.Popen[bytes], reading: int, proxy: Proxy, outcome: Outcome, epochs: int
) -> None:
    """Takes a line for each epoch, and looks at memory meanwhile."""
    most, before, lines = 0, 0.0, b""
    end = time.monotonic() + SECONDS
    while len(outcome.epochs) < epochs:
        if not select.select([reading], [], [], LOOK)[0]:
            most = max(most, tree.memory(process.pid))
            if process.poll() is not None:
                return
            if time.monotonic() > end:
                raise TimeoutError(f"TimeoutError: epoch {len(outcome.epochs)} took over {SECONDS:.0f} s")
            continue
        piece = os.read(reading, 1 << 16)
        if not piece:
            return
        *whole, lines = (lines + piece).split(b"\n")
        for line in whole:
            figures = json.loads(line)
            if "settings" in figures:
                outcome.settings = figures["settings"]
                continue
            counts, cpu = proxy.counts(), tree.cpu_seconds(process.pid)
            proxy.begin()
            end = time.monotonic() + SECONDS
            if "seconds" in figures:
                most = max(most, tree.memory(process.pid))
                seconds = figures.pop("seconds")
                counted = asdict(counts) | {"requests": counts.requests}
                outcome.epochs.append(Epoch(seconds, counted, cpu - before, most, figures))
            before = cpu


def reason(errors: str) -> str:
    """The last exception that was written, in one line; else the last line."""
    lines = errors.strip().splitlines() or ["ended without a word"]
    named = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)] or lines
    return named[-1].strip()[:200]


def _environment(setting: Setting) -> dict[str, str]:
    """What libraries take from it: how the store is reached, and folders that go away."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    return kept | {
        "AWS_ACCESS_KEY_ID": setting.access,
        "AWS_SECRET_ACCESS_KEY": setting.secret,
        "AWS_DEFAULT_REGION": setting.region,
        "AWS_REGION": setting.region,
        "AWS_ENDPOINT_URL": setting.endpoint,
        "AWS_ALLOW_HTTP": "true",
        "S3_ENDPOINT_URL": setting.endpoint,
        "AWS_EC2_METADATA_DISABLED": "true",
        "HF_HOME": f"{setting.folder}/hf",
        "HF_HUB_OFFLINE": "1",
        "DO_NOT_TRACK": "1",
        "LITDATA_DISABLE_VERSION_CHECK": "1",
        "TMPDIR": setting.folder,
        "OMP_NUM_THREADS": "1",
    }
