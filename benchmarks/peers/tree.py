"""What a process and all that it started have used: seconds of CPU, memory with shared pages counted once."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def members(root: int) -> list[int]:
    """`root` and all that descend from it now."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (stat := _stat(int(entry.name))):
            children.setdefault(int(stat[1]), []).append(int(entry.name))
    found = [root]
    for pid in found:
        found.extend(children.get(pid, []))
    return found


def cpu_seconds(root: int) -> float:
    """User and system time of all members, with that of those which they have waited for."""
    ticks = 0
    for pid in members(root):
        if stat := _stat(pid):
            ticks += sum(int(value) for value in stat[11:15])
    return ticks / _TICKS


def memory(root: int) -> int:
    """Bytes resident in all members; a page that several share is counted once."""
    total = 0
    for pid in members(root):
        with contextlib.suppress(OSError, StopIteration):
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            total += int(next(line for line in lines if line.startswith("Pss:")).split()[1]) << 10
    return total


def end(process: subprocess.Popen[bytes], patience: float) -> None:
    """Waits so long for a process of ours to end by itself; ends it and what it started, by their ids."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(patience)
    left = {pid: _started(pid) for pid in members(process.pid)}
    process.kill()
    process.wait()
    for pid, started in left.items():
        # Not another process that has its id since then.
        if pid != process.pid and started and _started(pid) == started:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _started(pid: int) -> str:
    stat = _stat(pid)
    return stat[19] if stat else ""


def _stat(pid: int) -> list[str]:
    """State, parent and more; nothing if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
