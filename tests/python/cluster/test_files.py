"""The files of `examples/cluster` that operators copy mean something to what reads them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

FILES = Path(__file__).parents[3] / "examples" / "cluster"
UNIT = FILES / "hotset.service"


def accepts(arguments: list[str]) -> str:
    """What `hotset` says against some arguments; nothing if it knows them."""
    command = [sys.executable, "-m", "hotset", *arguments, "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stderr if done.returncode else ""


def test_systemd_takes_the_unit_and_its_command_is_one_of_ours(tmp_path: Path) -> None:
    text = UNIT.read_text()
    (command,) = re.findall(r"^ExecStart=/opt/hotset/bin/hotset (.*)$", text, re.MULTILINE)
    assert accepts(command.split()) == ""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("`systemd-analyze` is missing, which verifies units")
    # It looks for the program.
    placed = tmp_path / UNIT.name
    placed.write_text(text.replace("/opt/hotset/bin/hotset", sys.executable))
    done = subprocess.run(["systemd-analyze", "verify", placed], capture_output=True, text=True, check=False)
    # It speaks of other units of this machine too.
    assert [line for line in done.stderr.splitlines() if UNIT.name in line] == []


def test_every_setting_of_the_file_is_a_flag() -> None:
    settings = tomllib.loads((FILES / "node.toml").read_text())
    assert {"cluster", "listen", "peer_token_file"} <= settings.keys()
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]
    assert accepts(["serve", *flags]) == ""
    assert "--peer-tokens" in accepts(["serve", "--peer-tokens=x"]), "what there is not is refused"


def test_the_daemonset_is_one_and_mounts_what_its_command_names() -> None:
    (described,) = yaml.safe_load_all((FILES / "daemonset.yaml").read_text())
    assert (described["apiVersion"], described["kind"]) == ("apps/v1", "DaemonSet")
    template = described["spec"]["template"]
    assert described["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    pod = template["spec"]
    (container,) = pod["containers"]
    assert accepts(container["args"]) == ""
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts.keys() == {volume["name"] for volume in pod["volumes"]}
    paths = [value for _, _, value in (each.partition("=") for each in container["args"]) if value[:1] == "/"]
    assert paths and all(any(path.startswith(f"{mount}/") for mount in mounts.values()) for path in paths)
    named = {each["name"] for each in container["env"]}
    assert set(re.findall(r"\$\((\w+)\)", " ".join(container["args"]))) <= named
