"""`earmark review` on a day of audio and 100,000 events: response times, and memory of the server.

    python benchmarks/review.py [--hours 24] [--rate 44100] [--events 100000] [--verdicts 1000] [--work DIR]

Writes a FLAC file of --hours (quiet noise with tones; kept in DIR) and the ledger of a job with that many --events in
it. The command serves them in a separate process. Measured through HTTP, with the requests of a browser:

- first view: the page's requests from the session to the last visible tile, with an empty cache, after another
  recording was shown;
- tiles: at random times and zooms, four at a time, as on the page; each is timed alone;
- queue and grid: each order of all events, and the 48 pictures of a page of the grid;
- verdicts: one after another, each acknowledged; also with the requests of the page in between;
- a kill (SIGKILL) during as many verdicts: whether each acknowledged one is in the journal afterwards;
- memory: the highest resident memory of the server.

Other load on the machine affects times, but not processor times.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import numpy as np
import soundfile
from measuring import memory, timed

from earmark.annotations import Label
from earmark.detection.ledger import Ledger
from earmark.detection.outputs import JobFolder
from earmark.files import json_text
from earmark.reviewing.queues import ORDERS
from earmark.reviewing.tiles import COLUMNS

CLASSES = ("owl", "dog", "rain", "siren", "wren")
ACROSS = 1100  # pixels of the view


def make_recording(path: Path, hours: float, rate: int) -> None:
    """Write a recording, unless it exists."""
    if path.exists() and soundfile.info(path).frames == round(hours * 3600) * rate:
        return
    rng = np.random.default_rng(0)
    t = np.arange(60 * rate) / rate
    minute = 0.0005 * rng.normal(size=len(t)) + 0.05 * np.sin(2 * np.pi * 1000 * t) * (t % 20 < 1)
    draft = path.with_name(f"draft-{path.name}")
    with soundfile.SoundFile(draft, "w", rate, 1, "PCM_16", format="FLAC", compression_level=0) as file:
        for _ in range(round(hours * 60)):
            file.write(minute.astype(np.float32))
    draft.rename(path)


def make_job(work: Path, hours: float, rate: int, events: int) -> Path:
    """The folder of a job with a long and a short recording."""
    long, short = work / f"day-{hours:g}h-{rate}.flac", work / f"minute-{rate}.flac"
    make_recording(long, hours, rate)
    make_recording(short, 1 / 60, rate)
    folder = Path(tempfile.mkdtemp(prefix="found-", dir=work))
    rng = np.random.default_rng(1)
    onsets = np.sort(rng.uniform(0, hours * 3600 - 5, events))
    labels, confidence = rng.integers(0, len(CLASSES), events), rng.beta(4, 2, events)
    rows = [
        Label(long.name, round(float(onset), 3), round(float(onset) + 0.8, 3), CLASSES[c], True, float(p))
        for onset, c, p in zip(onsets, labels, confidence, strict=True)
    ]
    with Ledger(JobFolder(folder).ledger) as ledger:
        ledger.set_about({"decoder": "benchmark"})
        for path, detected in ((long, rows), (short, [])):
            ledger.add([(path, path.name)])
            ledger.finish(path, detected, status=path.stat(), duration=soundfile.info(path).duration)
    (folder / "job.json").write_text(json_text({"classes": CLASSES, "decoder": {"threshold": 0.5}}))
    return folder


class Server:
    """The command in a separate process."""

    def __init__(self, folder: Path, cache: Path) -> None:
        command = [sys.executable, "-m", "earmark.cli", "review", str(folder), "--no-browser", "--port", "0"]
        began = time.perf_counter()
        environment = {**os.environ, "EARMARK_CACHE": str(cache)}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        assert self.process.stdout is not None
        self.parts = urlsplit(self.process.stdout.readline().split()[-1])
        self.start_seconds = time.perf_counter() - began

    def request(self, path: str, body: object = None, **values: object) -> bytes:
        connection = http.client.HTTPConnection(str(self.parts.hostname), self.parts.port, timeout=60)
        query = f"?{urlencode(values)}" if values else ""
        headers = {} if body is None else {"content-type": "application/json"}
        data = None if body is None else json.dumps(body)
        connection.request("GET" if body is None else "POST", f"{self.parts.path}api/{path}{query}", data, headers)
        response = connection.getresponse()
        content = response.read()
        connection.close()
        if response.status != 200:
            raise SystemExit(f"{path}: {response.status} {content[:200]!r}")
        return content

    def get(self, path: str, body: object = None, **values: object) -> Any:
        return json.loads(self.request(path, body, **values))

    def processor_seconds(self) -> float:
        """Processor time that the server has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


def tiles_of(onset: float, offset: float, duration: float) -> list[tuple[int, int]]:
    """Level and index of the tiles that the page requests."""
    level = int(np.clip(round(np.log2((offset - onset) / ACROSS / 0.001)), 0, 17))
    span = 0.001 * COLUMNS * 2**level
    return [(level, k) for k in range(int(onset // span), int(min(offset, duration - 1e-6) // span) + 1)]


def view(
    server: Server, pool: ThreadPoolExecutor, index: int, onset: float, offset: float, duration: float
) -> list[float]:
    """Load what the page loads for a view; seconds of each tile."""
    server.get(f"recordings/{index}/events", onset=onset, offset=offset)
    server.get(f"recordings/{index}/probabilities", onset=onset, offset=offset, points=ACROSS)
    paths = [f"recordings/{index}/tiles/mel/{level}/{k}" for level, k in tiles_of(onset, offset, duration)]
    return list(pool.map(lambda path: timed(lambda: server.request(path)), paths))


def judge(
    server: Server, events: Sequence[dict[str, Any]], *, run: str, with_views: bool
) -> tuple[list[float], list[str]]:
    """Judge one event after another; seconds and ids of those that were acknowledged."""
    seconds, done = [], []
    with ThreadPoolExecutor(4) as pool:
        for number, event in enumerate(events):
            verdict = ("right", "wrong", "unsure")[number % 3]
            action = {"id": f"{run}-{number}", "reviewer": "script", "action": "verdict", "verdict": verdict}
            began = time.perf_counter()
            if with_views:
                view(server, pool, event["recording"], event["onset"] - 1, event["offset"] + 1, 1e9)
                server.get(f"events/{event['id']}")
            try:
                server.get("actions", {**action, "events": [event["id"]]})
            except (OSError, http.client.HTTPException):
                break
            seconds.append(time.perf_counter() - began)
            done.append(event["id"])
    return seconds, done


def all_events(server: Server, count: int, **query: object) -> list[dict[str, Any]]:
    first = server.get("queue", count=500, **query)
    events = list(first["events"])
    while len(events) < min(count, first["total"]):
        events += server.get(f"queue/{first['queue']}", first=len(events), count=500)["events"]
    return events[:count]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=24)
    parser.add_argument("--rate", type=int, default=44100)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--verdicts", type=int, default=1000)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        work = options.work or Path(scratch)
        work.mkdir(parents=True, exist_ok=True)
        folder = make_job(work, options.hours, options.rate, options.events)
        rows = measure(folder, Path(scratch) / "cache", options.hours * 3600, options.verdicts)
    for name, value in rows.items():
        print(f"{name:<58} {value if isinstance(value, str) else f'{value:.3f}'}")
    if options.json:
        options.json.write_text(json_text(rows, indent=1) + "\n")


def measure(folder: Path, cache: Path, duration: float, verdicts: int) -> dict[str, float | str]:
    rows: dict[str, float | str] = {}
    server = Server(folder, cache)
    rows["start of the command to its address, s"] = server.start_seconds
    names = [row["name"] for row in server.get("recordings")["recordings"]]
    long = next(k for k, name in enumerate(names) if name.startswith("day"))
    with ThreadPoolExecutor(4) as pool:
        view(server, pool, 1 - long, 0, 60, 60)

        def first_view() -> None:
            server.get("session")
            server.get("progress")
            server.get("queue", count=100)
            server.get(f"recordings/{long}")
            server.get(f"recordings/{long}/events")
            view(server, pool, long, 3600, 3610, duration)

        rows["first view of the day, s"] = timed(first_view)
        rows["view of the whole day, s"] = timed(lambda: view(server, pool, long, 0, duration, duration))
        rng, each = np.random.default_rng(2), []
        before = server.processor_seconds()
        for _ in range(120):
            length = float(np.exp(rng.uniform(np.log(0.05), np.log(duration))))
            onset = float(rng.uniform(0, duration - length))
            each += view(server, pool, long, onset, onset + length, duration)
        rows["processor time per tile, ms"] = 1000 * (server.processor_seconds() - before) / len(each)
        for share in (50, 95, 99):
            rows[f"tile, {share}th percentile of {len(each)}, ms"] = 1000 * float(np.percentile(each, share))
        for order in ORDERS:
            before = server.processor_seconds()
            rows[f"queue, {order}, s"] = timed(lambda order=order: server.get("queue", order=order, count=100))  # type: ignore[misc]
            rows[f"queue, {order}, processor time, s"] = server.processor_seconds() - before
        page = server.get("queue", order="informative", count=48)["events"]
        pictures = [f"events/{event['id']}/thumbnail" for event in page]
        before = server.processor_seconds()
        rows["grid of 48, s"] = timed(lambda: list(pool.map(server.request, pictures)))
        rows["processor time of the grid, s"] = server.processor_seconds() - before
    events = all_events(server, verdicts, order="informative")
    seconds, _ = judge(server, events, run="plain", with_views=False)
    rows[f"verdict alone, median of {len(seconds)}, ms"] = 1000 * float(np.median(seconds))
    rows["verdict alone, 95th percentile, ms"] = 1000 * float(np.percentile(seconds, 95))
    seconds, _ = judge(server, all_events(server, 100, order="random"), run="views", with_views=True)
    rows[f"verdict with a new view, median of {len(seconds)}, s"] = float(np.median(seconds))
    rows["verdict with a new view, 95th percentile, s"] = float(np.percentile(seconds, 95))
    rows["highest memory of the server, MB"] = memory("VmHWM", server.process.pid) / 1e6
    rows["acknowledged verdicts lost by a kill"] = lost_by_kill(server, folder, cache, verdicts)
    return rows


def lost_by_kill(server: Server, folder: Path, cache: Path, verdicts: int) -> str:
    """Kill the server during verdicts; how many of the acknowledged ones are missing afterwards."""
    events = all_events(server, verdicts, order="time")
    with ThreadPoolExecutor(1) as pool:
        judging = pool.submit(judge, server, events, run="killed", with_views=False)
        target = server.get("progress")["number"] + verdicts // 2
        while server.get("progress")["number"] < target:
            time.sleep(0.05)
        server.kill()
        _, acknowledged = judging.result()
    again = Server(folder, cache)
    judged = {event["id"] for event in all_events(again, 10**6, status="judged")}
    again.kill()
    return f"{len(set(acknowledged) - judged)} of {len(acknowledged)}"


if __name__ == "__main__":
    main()
