"""What a catalog of 1.28 million keys costs, beside the bare listing of them.

A small server on loopback speaks enough S3 to list 1,000 classes of 1,280 keys, its pages made before the
clock starts. The bare listing fetches the same pages, as many at a time, and drops them. Then Hotset lists
them into a catalog, and opens it again from the listing it kept. Requests and samples are asserted. Half the
keys are listed too, to show that nothing grows faster than the keys.

    python -m benchmarks.store.listing
"""

from __future__ import annotations

import argparse
import http.client
import os
import subprocess
import sys
import tempfile
import time
import urllib.parse
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import hotset

from benchmarks.sources import UntrueError, isolate, served

PAGE = 1_000
AT_ONCE = 32
STAMP = "<LastModified>2026-01-01T00:00:00.000Z</LastModified>"


class Pages(BaseHTTPRequestHandler):
    """Answers ListObjectsV2 from pages made before."""

    protocol_version = "HTTP/1.1"
    pages: dict[str, bytes]
    asked = 0

    def do_GET(self) -> None:
        query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query))
        if self.path == "/asked":
            body = str(Pages.asked).encode()
            Pages.asked = 0
        else:
            Pages.asked += 1
            body = self.pages[query.get("prefix", "") + query.get("continuation-token", "")]
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


def made(classes: int, each: int) -> dict[str, bytes]:
    """Every page, by its prefix and the token that asks for it."""
    names = [f"n{1_440_764 + number:08d}" for number in range(classes)]
    common = "".join(f"<CommonPrefixes><Prefix>train/{name}/</Prefix></CommonPrefixes>" for name in names)
    pages = {"train/": f"<ListBucketResult>{common}</ListBucketResult>".encode()}
    for name in names:
        prefix = f"train/{name}/"
        for start in range(0, each, PAGE):
            numbers = range(start, min(start + PAGE, each))
            keys = "".join(
                f"<Contents><Key>{prefix}{name}_{10_026 + number}.JPEG</Key>{STAMP}"
                f'<ETag>"{number:032x}"</ETag><Size>110000</Size></Contents>'
                for number in numbers
            )
            more = (
                ""
                if numbers.stop == each
                else f"<NextContinuationToken>{numbers.stop}</NextContinuationToken>"
            )
            token = str(start) if start else ""
            pages[prefix + token] = f"<ListBucketResult>{more}{keys}</ListBucketResult>".encode()
    return pages


def store(classes: int, each: int) -> None:
    """Serves until its standard input ends."""
    Pages.pages = made(classes, each)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    server.daemon_threads = True
    import threading

    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_address[1], flush=True)
    sys.stdin.read()


def bare(port: int, classes: int, each: int) -> float:
    """Seconds to fetch every page and drop it."""
    names = [f"n{1_440_764 + number:08d}" for number in range(classes)]
    questions = [
        f"/bucket?list-type=2&prefix=train/{name}/" + (f"&continuation-token={start}" if start else "")
        for name in names
        for start in range(0, each, PAGE)
    ]
    parts = [questions[at::AT_ONCE] for at in range(AT_ONCE)]

    def fetch(part: list[str]) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        total = 0
        for question in part:
            connection.request("GET", question)
            total += len(connection.getresponse().read())
        connection.close()
        return total

    began = time.perf_counter()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        sum(pool.map(fetch, parts))
    return time.perf_counter() - began


def asked(port: int) -> int:
    """Requests since the last time this was asked."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", "/asked")
    count = int(connection.getresponse().read())
    connection.close()
    return count


def memory(pid: int, name: str) -> int:
    """A figure of a process's memory, in bytes."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(lines[name].split()[0]) * 1024


def measure(folder: Path, classes: int, each: int) -> None:
    """One row of the table."""
    samples = classes * each
    command = [sys.executable, "-m", "benchmarks.store.listing", "--store", str(classes), str(each)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    port = int(process.stdout.readline())
    try:
        seconds = bare(port, classes, each)
        pages = asked(port)
        options = {"aws_endpoint": f"http://127.0.0.1:{port}", "aws_skip_signature": "true"}
        with served(folder, 32):
            first_look = hotset.connect()
            pid = first_look.server_pid
            before = memory(pid, "VmRSS")
            began = time.perf_counter()
            train = hotset.ImageFolder("s3://bucket/train", loader=bytes, cache=0, storage_options=options)
            listed = time.perf_counter() - began
            grown, peak = memory(pid, "VmRSS") - before, memory(pid, "VmHWM") - before
            requests = asked(port)
            began = time.perf_counter()
            again = hotset.ImageFolder("s3://bucket/train", loader=bytes, cache=0, storage_options=options)
            kept = time.perf_counter() - began
            if (len(train), len(again), requests, asked(port)) != (samples, samples, pages + 1, 0):
                raise UntrueError(
                    f"{len(train)} and {len(again)} samples, {requests} requests for {pages} pages"
                )
            train.close()
            again.close()
            first_look.close()
    finally:
        process.communicate()
    print(
        f"{samples:>10,}  {pages:>6,}  {seconds:>8.1f} s  {listed:>8.1f} s  {kept:>8.2f} s  "
        f"{grown / samples:>7.0f} B  {peak / samples:>7.0f} B"
    )


def main() -> None:
    """Measures, and prints one table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--store", nargs=2, type=int, help=argparse.SUPPRESS)
    parser.add_argument("--classes", type=int, default=1_000)
    parser.add_argument("--each", type=int, default=1_280)
    arguments = parser.parse_args()
    if arguments.store:
        store(*arguments.store)
        return
    print(
        "      keys   pages  bare listing    Hotset  from disk   memory     peak   (a sample, of the server)"
    )
    for classes in (arguments.classes // 2, arguments.classes):
        with tempfile.TemporaryDirectory(prefix="hs-list-") as top:
            isolate(Path(top))
            measure(Path(top), classes, arguments.each)
            os.environ.pop("HOTSET_RUNTIME_DIR", None)


if __name__ == "__main__":
    main()
