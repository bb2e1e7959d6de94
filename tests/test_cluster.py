"""The same job on a Ray cluster of two nodes, with a worker killed and a node lost in the middle; what Ray exposes."""

import csv
import json
import os
import signal
import socket
import sys
import time
import warnings
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import warm

from earmark import audio, cluster
from earmark.checkpoint import save_detector
from earmark.cluster import RayExecutor
from earmark.detection.job import JobOptions, run_job
from earmark.detection.spans import Span
from earmark.detector import Detector
from earmark.errors import ArgumentError, DataError, MissingExtraError
from earmark.events import Decoder
from earmark.features import FeatureConfig, LogMel
from earmark.inference.scores import read_scores
from earmark.networks import create_network
from earmark.pooling import create_pool

os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # before Ray is imported: these tests listen on loopback only


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """An untrained detector that changes its mind often."""
    with torch.random.fork_rng():
        torch.manual_seed(3)
        features = FeatureConfig(rate=16000, n_bands=64, scaling="fixed")
        detector = Detector(["dog", "cat"], features, create_network("cnn", 64), create_pool("max", 2)).eval()
        with torch.no_grad():
            noise = torch.rand(60 * 16000) - 0.5
            logits = detector(LogMel(features)(noise[None])).logits
            detector.head.weight /= logits.std((0, 1))[:, None]
            detector.head.bias.copy_(-logits.mean((0, 1)) / logits.std((0, 1)))
    path = tmp_path_factory.mktemp("model") / "model.safetensors"
    save_detector(path, detector, network={"name": "cnn"}, pool={"name": "max"})
    return path


@pytest.fixture(scope="module")
def sounds(tmp_path_factory):
    """Six recordings of 80 s, one of them with an odd name; and one that is none."""
    rng = np.random.default_rng(1)
    folder = tmp_path_factory.mktemp("sounds")
    for name in ("a", "b", "c", "d", "night of\nthe long näme", "below/a"):
        (folder / name).parent.mkdir(exist_ok=True)
        loud = np.repeat(rng.uniform(0, 0.5, 80), 16000)
        audio.write(folder / f"{name}.wav", loud * rng.uniform(-1, 1, len(loud)), 16000)
    (folder / "broken.wav").write_bytes(b"RIFF")
    return folder


@pytest.fixture(scope="module")
def two_nodes():
    """A cluster on this machine: a head and another node, one core each."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'earmark[cluster]'")
    from ray.cluster_utils import Cluster

    options = {"num_cpus": 1, "num_gpus": 0, "object_store_memory": 100 << 20}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # Ray leaves files open
        nodes = Cluster(initialize_head=True, head_node_args={**options, "include_dashboard": False})
        nodes.extra = nodes.add_node(**options)
        yield nodes
        nodes.shutdown()


class Sabotaged:
    """An executor in whose middle a worker is killed, and later a node; remembers what it was asked, and gave."""

    def __init__(self, executor, nodes, flag):
        self.executor, self.nodes, self.flag = executor, nodes, flag
        self.drawn, self.given, self.log = [], [], []

    def map_spans(self, spans):
        for span, result in self.executor.map_spans(self._drawn(spans)):
            self.given.append(span)
            yield span, result
            if len(self.given) == 3:
                victim = int(os.readlink(self.flag))  # there: a span that does not wait has found it
                os.kill(victim, signal.SIGKILL)
                self.log.append(f"killed process {victim} after {len(self.given)} spans")
            if len(self.given) == 8:
                self.nodes.remove_node(self.nodes.extra)
                self.log.append(f"removed a node after {len(self.given)} spans")

    def _drawn(self, spans):
        for span in spans:
            self.drawn.append(span)
            assert len(self.drawn) - len(self.given) <= 4  # two cores: two spans under way, and two that wait
            yield span


def halting(flag):
    """What runs spans, but the first process to do so says which it is, by a link, and waits to be killed."""

    def run_span(*arguments):
        with suppress(FileExistsError):
            os.symlink(str(os.getpid()), flag)  # by one process only, and at once with what it says
            time.sleep(600)
        return cluster._run_span(*arguments)  # of the module over there, which nobody has changed

    return run_span


def test_a_job_on_a_cluster_survives_losses_and_equals_the_local_one(tmp_path, model, sounds, two_nodes, monkeypatch):
    options = JobOptions(decoder=Decoder(min_duration=0.1), keep_scores=True, span=20.0)
    local = run_job(model, [sounds], tmp_path / "local", options, workers=1)
    assert (local.done, local.failed) == (6, 1)
    monkeypatch.setattr(cluster, "_run_span", halting(tmp_path / "flag"))
    with RayExecutor(two_nodes.address, model) as executor:
        sabotaged = Sabotaged(executor, two_nodes, tmp_path / "flag")
        spread = run_job(model, [sounds], tmp_path / "spread", options, executor=sabotaged)

        gone = Span(sounds / "gone.wav", 0, 5)
        ((_, refused),) = executor.map_spans([gone])
        assert isinstance(refused, DataError)
        assert "of the cluster; audio files must have the same path on every machine" in str(refused)
        ((_, refused),) = executor.map_spans([Span(sounds / "a.wav", 0, 10**6)])
        assert isinstance(refused, DataError)
        assert "has the file changed meanwhile?" in str(refused)

        executor._model = executor._model._replace(version="0.0.0")
        with pytest.raises(ArgumentError, match=r"this one 0\.0\.0; install the same version everywhere"):
            list(executor.map_spans([gone]))

    print("\n".join([*sabotaged.log, f"{len(sabotaged.given)} spans of {spread.done} recordings, each once"]))
    assert len(sabotaged.log) == 2
    assert len(sabotaged.given) == 24
    assert sorted(map(str, sabotaged.given)) == sorted(map(str, sabotaged.drawn))
    assert len(set(sabotaged.given)) == len(sabotaged.given)
    assert (spread.done, spread.failed, spread.events) == (local.done, local.failed, local.events)
    for name in ("events.csv", "failed.csv"):
        assert (tmp_path / "spread" / name).read_bytes() == (tmp_path / "local" / name).read_bytes()
    with (tmp_path / "local" / "events.csv").open(newline="") as file:
        assert len(list(csv.reader(file))) > 10
    kept = sorted(path.relative_to(tmp_path / "local") for path in (tmp_path / "local").rglob("*.npz"))
    assert len(kept) == 6
    for path in kept:
        np.testing.assert_array_equal(
            read_scores(tmp_path / "spread" / path).p, read_scores(tmp_path / "local" / path).p
        )


def test_without_ray_the_extra_is_named(monkeypatch, model):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"detection on a cluster needs .* pip install 'earmark\[cluster\]'"):
        RayExecutor("local", model)


def test_addresses_that_lead_nowhere_are_refused(model):
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'earmark[cluster]'")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # bound, but nobody listens
        port = free.getsockname()[1]
        for address in (f"127.0.0.1:{port}", f"ray://127.0.0.1:{port}"):
            with pytest.raises(ArgumentError, match="cannot connect"):
                RayExecutor(address, model)
    with pytest.raises(ArgumentError, match="expected ray://HOST:PORT, HOST:PORT, auto or local"):
        RayExecutor("the cluster", model)
    with pytest.raises(ArgumentError, match="workers: expected at least 1, got 0"):
        RayExecutor("local", model, workers=0)


def fake(get, resources):
    """An executor that has met no cluster."""

    class RayError(Exception):
        pass

    class RayTaskError(RayError):
        pass

    executor = object.__new__(RayExecutor)
    executor._ray = SimpleNamespace(
        get=lambda ref: get(RayError, RayTaskError),
        exceptions=SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError),
        cluster_resources=lambda: resources,
    )
    executor._share, executor._limit, executor._limit_updated = cluster._gpu_share(resources), 0, -100.0
    return executor


def test_a_span_that_kills_whoever_runs_it_is_a_failure_of_its_file():
    def lost(ray_error, _):
        raise ray_error("first line\nThe worker died.")

    found = fake(lost, {})._fetched(None, Span(Path("deadly.wav"), 0, 1))
    assert isinstance(found, DataError)
    assert str(found).startswith("deadly.wav: the process or machine reading it was lost 5 times")
    assert str(found).endswith("The worker died.")


def test_a_cluster_that_cannot_run_earmark_ends_the_job():
    def unable(_, task_error):
        raise task_error("Traceback\nModuleNotFoundError: No module named 'earmark'")

    with pytest.raises(ArgumentError, match="the cluster cannot run earmark: ModuleNotFoundError: No module"):
        fake(unable, {})._fetched(None, Span(Path("a.wav"), 0, 1))


def test_what_nobody_thought_of_keeps_its_name():
    found = fake(lambda *_: RuntimeError("ZeroDivisionError: x"), {})._fetched(None, Span(Path("a"), 0, 1))
    assert isinstance(found, RuntimeError)
    assert str(found) == "ZeroDivisionError: x"


@pytest.mark.parametrize(
    ("there", "share", "room"),
    [
        ({"CPU": 3.0}, 0.0, 6),
        ({}, 0.0, 2),
        ({"CPU": 8.0, "GPU": 2.0}, 0.25, 16),
        ({"CPU": 2.0, "GPU": 4.0}, 1.0, 4),
        ({"CPU": 128.0, "GPU": 1.0}, 1 / 16, 32),
    ],
)
def test_as_much_is_under_way_as_there_is_room_for(there, share, room):
    executor = fake(lambda *_: None, there)
    assert executor._share == share
    assert executor._current_limit() == room


LISTENING = """
import json, sys
from earmark.cluster import RayExecutor
from earmark.detection.spans import Span
from pathlib import Path

def listening():
    import psutil  # Ray brings its own

    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        for connection in process.net_connections("inet"):
            if connection.status == "LISTEN":
                yield connection.laddr.ip

with RayExecutor("local", sys.argv[1], workers=1) as executor:
    ((_, result),) = executor.map_spans([Span(Path(sys.argv[2]), 0, 5)])
    print(json.dumps([sorted(set(listening())), list(result.shape)]))
"""


def test_a_local_ray_listens_on_loopback_only(model, sounds, tmp_path):
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'earmark[cluster]'")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    words = [sys.executable, "-c", LISTENING, str(model), str(sounds / "a.wav")]
    done = warm.run(words, env={**environment, "HOME": str(tmp_path)}, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    addresses, shape = json.loads(done.stdout)
    assert addresses
    assert set(addresses) <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}
    assert shape == [5, 2]
    token = tmp_path / ".ray" / "auth_token"
    assert len(token.read_text()) == 64
    assert token.stat().st_mode & 0o777 == 0o600
    assert token.parent.stat().st_mode & 0o777 == 0o700


def test_ray_that_would_listen_everywhere_is_not_started(model, monkeypatch, tmp_path):
    started = []
    ray = SimpleNamespace(
        util=SimpleNamespace(get_node_ip_address=lambda: "192.0.2.1"),
        init=lambda **options: started.append(options),
        is_initialized=lambda: False,
    )
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    with pytest.raises(ArgumentError, match="Ray would listen on all interfaces, since it was imported before"):
        RayExecutor("local", model)
    assert started == []


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / ".ray").mkdir()
    return tmp_path


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions")
@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
def test_a_token_that_others_can_read_is_refused(home, monkeypatch, mode):
    for path, variable in ((home / ".ray" / "auth_token", None), (home / "my token", "RAY_AUTH_TOKEN_PATH")):
        path.write_text("0" * 64)
        path.chmod(mode)
        if variable:
            monkeypatch.setenv(variable, str(path))
        with pytest.raises(ArgumentError, match="other users can read this token") as refused:
            cluster._check_token(is_new=False)
        assert str(refused.value).startswith(f"{path}: ")
        assert "chmod 600" in str(refused.value)
        path.chmod(0o600)
        cluster._check_token(is_new=False)


def test_a_token_is_written_for_a_new_cluster_only_if_there_is_none(home, monkeypatch):
    token = home / ".ray" / "auth_token"
    cluster._check_token(is_new=False)
    assert not token.exists()
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    cluster._check_token(is_new=True)
    assert not token.exists()
    monkeypatch.delenv("RAY_AUTH_MODE")
    cluster._check_token(is_new=True)
    first = token.read_text()
    cluster._check_token(is_new=True)
    assert token.read_text() == first
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(home / "none"))
    with pytest.raises(ArgumentError, match=r"RAY_AUTH_TOKEN_PATH=.*none: no such file"):
        cluster._check_token(is_new=True)
