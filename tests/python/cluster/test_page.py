"""The three hosts of `docs/cluster.md`, command by command as the page has them."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

from hosts import NODES
from nodes import Cluster, Node
from readers import Readers
from trainings import numbered_files

PAGE = Path(__file__).parents[3] / "docs" / "cluster.md"
ADDRESSES = ("10.1.0.11", "10.1.0.12", "10.1.0.13")
"""Of the page's hosts."""


def commands(about: str) -> str:
    """The commands of the page that hold some words."""
    (found,) = [
        block
        for block in re.findall(r"^```\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
        if about in block
    ]
    return str(found)


def test_certificates_nodes_and_a_training_work_as_the_page_says(
    cluster: Cluster, tmp_path: Path, runtime: Path
) -> None:
    own = {page: cluster.hosts.address(f"n{number}", NODES) for number, page in enumerate(ADDRESSES, 1)}
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    making = commands("openssl req -x509")
    for page, address in own.items():
        making = making.replace(page, address)
    subprocess.run(["bash", "-euc", making], cwd=secrets, check=True, capture_output=True)
    serving = re.sub(r"etcd://\S+", cluster.etcd.address(cluster.name), commands("hotset serve --socket"))
    for number, address in enumerate(own.values(), 1):
        command = serving.replace("\\\n", "").replace("gpu-1", f"gpu-{number}").replace(ADDRESSES[0], address)
        command = command.replace("/etc/hotset/", f"{secrets}/")
        program, *arguments = shlex.split(command)
        assert program == "hotset"
        at = arguments.index("--socket")
        del arguments[at : at + 2]
        name = f"gpu-{number}"
        within = cluster.hosts.within(f"n{number}", [sys.executable, "-m", "hotset", *arguments])
        cluster.nodes[name] = Node(name, tmp_path / name, runtime.parent / f"{name}.sock", within, {})
    cluster.until_whole()
    truth = numbered_files(tmp_path / "tree", 300, 1000)
    sockets = [node.socket for node in cluster.nodes.values()]
    readers = Readers(sockets, tmp_path / "tree", "page", cache="20%", strategy="iis", policy="icache")
    for epoch in range(3):
        readers.epoch(epoch, truth)
    readers.close()
