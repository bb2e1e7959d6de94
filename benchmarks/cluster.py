"""A job on a Ray cluster of two nodes on this machine, a worker of which is killed, compared with the same job locally.

    python benchmarks/cluster.py [--files 12] [--minutes 5] [--lose-node]

Starts a head and another node with one core each, writes recordings of noise, runs an untrained detector of the paper's
size on them with threads and on the cluster, and prints whether any span was lost or returned twice, and whether all
probabilities are bit-identical. Needs Linux, and the extra `cluster`.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

os.environ["RAY_DEDUP_LOGS_SKIP_REGEX"] = "."  # suppresses Ray's message about the killed worker
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # on every system: listen on the loopback interface only

import numpy as np
import ray
import torch
from ray.cluster_utils import Cluster

from earmark import audio
from earmark.checkpoint import save_detector
from earmark.cluster import RayExecutor
from earmark.detection.job import JobOptions, run_job
from earmark.detection.spans import Span
from earmark.detector import Detector
from earmark.features import FeatureConfig, LogMel
from earmark.inference.recordings import Probabilities
from earmark.inference.scores import read_scores
from earmark.networks import create_network
from earmark.pooling import create_pool


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=12)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--lose-node", action="store_true", help="also lose a whole node later on")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sounds = make_recordings(folder / "sounds", options.files, 60 * options.minutes)
        model = make_model(folder / "model.safetensors")
        began = time.perf_counter()
        run_job(model, [sounds], folder / "local", JobOptions(keep_scores=True, span=60.0), workers=2)
        print(f"local: {options.files} recordings of {options.minutes:g} min in {time.perf_counter() - began:.1f} s")
        nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        other = nodes.add_node(num_cpus=1)
        try:
            with RayExecutor(nodes.address, model) as executor:
                print(f"cluster: {len(ray.nodes())} nodes, Ray {ray.__version__}")
                watched = Sabotaged(executor, nodes, other if options.lose_node else None)
                began = time.perf_counter()
                job = JobOptions(keep_scores=True, span=60.0)
                report = run_job(model, [sounds], folder / "cluster", job, executor=watched)
                print(f"cluster: {report.done} done, {report.failed} failed in {time.perf_counter() - began:.1f} s")
        finally:
            nodes.shutdown()
        report_differences(folder, watched)


def make_recordings(folder: Path, files: int, seconds: float) -> Path:
    rng = np.random.default_rng(0)
    folder.mkdir()
    for k in range(files):
        loud = np.repeat(rng.uniform(0, 0.5, int(seconds)), 44100)
        audio.write(folder / f"{k:04}.wav", loud * rng.uniform(-1, 1, len(loud)), 44100)
    return folder


def make_model(path: Path) -> Path:
    """The paper's network, untrained, with outputs around one half."""
    torch.manual_seed(0)
    features = FeatureConfig(scaling="fixed")
    detector = Detector(["dog", "cat"], features, create_network("cnn", 128), create_pool("max", 2)).eval()
    with torch.no_grad():
        logits = detector(LogMel(features)(torch.rand(1, 60 * 44100) - 0.5)).logits
        detector.head.weight /= logits.std((0, 1))[:, None]
        detector.head.bias.copy_(-logits.mean((0, 1)) / logits.std((0, 1)))
    save_detector(path, detector, network={"name": "cnn"}, pool={"name": "max"})
    return path


class Sabotaged:
    """An executor that kills a worker after three spans, and if `other` is given, removes that node after twelve."""

    def __init__(self, executor: RayExecutor, nodes: Any, other: Any) -> None:
        self.executor, self.nodes, self.other = executor, nodes, other
        self.submitted: Counter[Span] = Counter()
        self.finished: Counter[Span] = Counter()

    def map_spans(self, spans: Iterable[Span]) -> Generator[tuple[Span, Probabilities | Exception], None, None]:
        for span, result in self.executor.map_spans(self._counted(spans)):
            self.finished[span] += 1
            yield span, result
            if self.finished.total() == 3:
                print(f"killed process {kill_a_running_worker(self.nodes)} while it ran a span, after 3 spans")
            if self.finished.total() == 12 and self.other is not None:
                self.nodes.remove_node(self.other)
                print("lost a node after 12 spans")

    def _counted(self, spans: Iterable[Span]) -> Iterator[Span]:
        for span in spans:
            self.submitted[span] += 1
            yield span


def kill_a_running_worker(nodes: Any) -> int:
    """SIGKILL a process of this cluster while it is running a span."""
    raylets = {p.process.pid for node in nodes.list_all_nodes() for p in node.all_processes["raylet"]}
    while True:
        for place in Path("/proc").glob("[0-9]*"):
            with suppress(OSError, IndexError):
                parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
                if parent not in raylets or not (place / "cmdline").read_bytes().startswith(b"ray::_run_span"):
                    continue
                os.kill(int(place.name), signal.SIGSTOP)  # so that its span cannot end between the check and the kill
                is_running = (place / "cmdline").read_bytes().startswith(b"ray::_run_span")
                os.kill(int(place.name), signal.SIGKILL if is_running else signal.SIGCONT)
                if is_running:
                    return int(place.name)


def report_differences(folder: Path, watched: Sabotaged) -> None:
    lost, twice = watched.submitted - watched.finished, watched.finished - watched.submitted
    print(f"spans: {watched.submitted.total()} submitted, {lost.total()} lost, {twice.total()} returned twice")
    tables = [(folder / job / "events.csv").read_bytes() for job in ("local", "cluster")]
    kept = sorted(path.relative_to(folder / "local") for path in (folder / "local").rglob("*.npz"))
    same = sum(
        np.array_equal(read_scores(folder / "local" / path).p, read_scores(folder / "cluster" / path).p)
        for path in kept
    )
    events = tables[0].count(b"\n") - 1
    print(f"events.csv: {events} events, {'the same bytes' if tables[0] == tables[1] else 'DIFFERENT'}")
    print(f"frame probabilities: the same bits in {same} of {len(kept)} recordings")


if __name__ == "__main__":
    main()
