"""The hosts and the etcd that these tests stand on do what they are relied on for."""

from __future__ import annotations

import subprocess
import time

from hosts import ETCD, NODES, Hosts
from members import Etcd

_SIZE = 256 << 10
_ANSWER = """
import socket, sys
listener = socket.create_server(("", 9))
print(flush=True)
listener.accept()[0].sendall(bytes(int(sys.argv[1])))
"""
_ASK = """
import socket, sys
asked, count = socket.create_connection((sys.argv[1], 9), 0.5), 0
while data := asked.recv(1 << 16):
    count += len(data)
print(count)
"""


def test_a_leg_that_is_pulled_loses_what_is_sent_and_the_other_does_not(hosts: Hosts) -> None:
    for switch, other in ((NODES, ETCD), (ETCD, NODES)):
        hosts.pull("n1", other)
        try:
            assert heard(hosts, switch)
            assert not heard(hosts, other)
        finally:
            hosts.plug("n1", other)
        assert heard(hosts, other)


def test_a_leader_of_etcd_that_is_killed_or_cut_off_is_followed_by_another(etcd: Etcd, hosts: Hosts) -> None:
    first = etcd.leader()
    etcd.kill(first)
    second = etcd.leader()
    assert second != first
    etcd.put("/tests/a", "still")
    etcd.mend()
    assert etcd.values("/tests/") == {"/tests/a": "still"}
    cut = etcd.leader()
    hosts.pull(cut, ETCD)
    try:
        assert etcd.leader(without=cut) != cut
    finally:
        hosts.plug(cut, ETCD)
    etcd.until_whole()


def test_an_etcd_of_which_all_members_were_killed_comes_back_with_what_it_had(etcd: Etcd) -> None:
    etcd.put("/tests/b", "kept")
    etcd.stop()
    etcd.mend()
    assert etcd.values("/tests/b") == {"/tests/b": "kept"}


def test_a_slow_link_takes_the_time_that_its_rate_says(hosts: Hosts) -> None:
    hosts.slow("n2", NODES, "2mbit")
    try:
        began = time.monotonic()
        assert heard(hosts, NODES)
        # What passes at once is a sixteenth.
        assert time.monotonic() - began > _SIZE * 15 / 16 * 8 / 2e6
    finally:
        hosts.unslow("n2", NODES)


def heard(hosts: Hosts, switch: str) -> bool:
    """Whether one host hears all that another says over a switch."""
    command = hosts.within("n2", ["python3", "-c", _ANSWER, str(_SIZE)])
    with subprocess.Popen(command, stdout=subprocess.PIPE) as answers:
        try:
            assert answers.stdout is not None and answers.stdout.readline() == b"\n"
            asked = hosts.within("n1", ["python3", "-c", _ASK, hosts.address("n2", switch)])
            done = subprocess.run(asked, capture_output=True, text=True, check=False)
            return done.stdout.strip() == str(_SIZE)
        finally:
            answers.kill()
