"""Starts scripts that use torch without each importing it anew: a process that forks, and becomes the script.

A line on its standard input is a JSON list: a script and its arguments, its environment, and a file for its
standard error. A line on its standard output is the id of the process that was started, or, when one has
ended, its id and its exit code. What is started is a process of its own, and ends as any Python does. An
empty line ends it: the end of its input may never come, since every worker that the tests fork holds that
pipe open too.
"""

from __future__ import annotations

import json
import os
import runpy
import select
import signal
import sys

import hotset
import torch

assert hotset and torch


def main() -> list[str]:
    """Starts what it is told to; in what was started, what that is. Nothing when there is no more."""
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakes)
    while True:
        ready, _, _ = select.select([sys.stdin, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            tell_of_ended()
        if sys.stdin in ready:
            line = sys.stdin.readline().strip()
            if not line:
                return []
            command, environment, errors = json.loads(line)
            child = os.fork()
            if child == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                os.close(woken)
                os.close(wakes)
                become(environment, errors)
                return list(command)
            print(json.dumps([child, None]), flush=True)


def tell_of_ended() -> None:
    """Says which of those that were started have ended, and how."""
    while True:
        try:
            child, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if child == 0:
            return
        print(json.dumps([child, os.waitstatus_to_exitcode(status)]), flush=True)


def become(environment: dict[str, str], errors: str) -> None:
    """Takes over what a process gets from the one that starts it."""
    os.environ.clear()
    os.environ.update(environment)
    for descriptor, path, flags in ((0, os.devnull, os.O_RDONLY), (1, os.devnull, os.O_WRONLY)):
        os.dup2(os.open(path, flags), descriptor)
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)


if __name__ == "__main__" and (told := main()):
    sys.argv = told
    runpy.run_path(told[0], run_name="__main__")
