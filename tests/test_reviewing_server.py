"""The server of a review, through real requests: who may do what, and what the answers are."""

import http.client
import io
import json
import signal
import socket
import sys
import time
import zipfile
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
import soundfile
import warm
from review_job import EVENTS, NAMES, RATE, make_job, served, write_job_events

import earmark as package
from earmark import audio
from earmark.errors import ArgumentError, MissingExtraError
from earmark.formats import read_labels
from earmark.reviewing import exporting, running
from earmark.reviewing import server as server_module
from earmark.reviewing.running import Address
from earmark.reviewing.sound import byte_range, excerpt
from earmark.reviewing.source import Recording
from earmark.reviewing.tiles import COLUMNS, ROWS, TileCache, column_seconds, compute, thumbnail

pytestmark = pytest.mark.usefixtures("own_cache")


class Client:
    """Sends requests as they are, to the address of a server."""

    def __init__(self, url):
        self.parts = urlsplit(url)
        self.numbers = iter(range(10**6))

    def request(self, method, path, body=None, base=None, **headers):
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection(self.parts.hostname, self.parts.port, timeout=30)
        connection.request(method, (self.parts.path if base is None else base) + path, body, headers)
        response = connection.getresponse()
        data = response.read()
        connection.close()
        return response.status, data, {name.lower(): value for name, value in response.getheaders()}

    def get(self, path, **headers):
        status, data, _ = self.request("GET", path, **headers)
        return status, json.loads(data)

    def post(self, path, values, **headers):
        headers = {"content_type": "application/json", **headers}
        status, data, _ = self.request("POST", path, json.dumps(values), **headers)
        return status, json.loads(data)

    def act(self, action, **values):
        request = {"id": f"t{next(self.numbers)}", "reviewer": "ada", "action": action, **values}
        return self.post("api/actions", request)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return make_job(tmp_path_factory.mktemp("job"))


def test_all_events_that_a_check_rules_out_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(server_module, "_MOST_SHOWN", 2)
    with served(make_job(tmp_path)) as server:
        status, answer = Client(server.url).act("checked", recording=NAMES[0])
    assert (status, len(answer["events"]), answer["ruledOut"]) == (200, 2, len(EVENTS))


def test_a_repeated_detection_is_noticed_and_verdicts_are_kept(tmp_path):
    found = make_job(tmp_path)
    (found / "events.csv").write_text("filename,onset,offset,label,confidence\n")
    with served(found) as server:
        client = Client(server.url)
        _, first = client.get("api/queue")
        assert client.get("api/updates?since=0")[1]["notice"] is None
        (found / "events.csv").write_text((found / "events.csv").read_text())  # with the same events
        assert client.act("verdict", events=[first["events"][0]["id"]], verdict="right")[1]["notice"] is None
        write_job_events(found, [(1.1, 2.0, "owl", 0.9)])
        (found / "events.csv").write_text("filename,onset,offset,label,confidence\na.wav,1.1,2.0,owl,0.9\n")
        assert "Detection was repeated in this folder." in client.get("api/updates?since=0")[1]["notice"]
        status, answer = client.act("verdict", events=[first["events"][1]["id"]], verdict="wrong")
        assert (status, len(answer["events"])) == (200, 1)
        assert answer["notice"].endswith("All verdicts are kept.")
    with served(found) as server:
        client = Client(server.url)
        assert client.get("api/updates?since=0")[1]["notice"] is None
        total = client.get("api/progress")[1]["total"]
        assert (total["right"], total["wrong"]) == (1, 1)


def test_a_changed_label_table_is_noticed(tmp_path):
    make_job(tmp_path)
    table = tmp_path / "labels.csv"
    table.write_text(f"filename,onset,offset,label\n{NAMES[0]},1,2,owl\n")
    with served(tmp_path / "sound", labels=table) as server:
        client = Client(server.url)
        assert client.get("api/updates?since=0")[1]["notice"] is None
        table.write_text(f"filename,onset,offset,label\n{NAMES[0]},1,2.5,owl\n")
        assert client.get("api/updates?since=0")[1]["notice"].startswith("labels.csv has changed. This page still")


@pytest.fixture(scope="module")
def steady(tmp_path_factory):
    """A client of a review that no test changes."""
    with served(make_job(tmp_path_factory.mktemp("steady"))) as server:
        yield Client(server.url)


@pytest.fixture
def server(found):
    (found / "verdicts.jsonl").unlink(missing_ok=True)
    with served(found) as server:
        yield server


@pytest.fixture
def client(server):
    return Client(server.url)


def test_every_request_needs_the_token(client, server):
    for path in ("", "api/session", "static/main.js", "api/recordings/0/sound.wav"):
        for base in ("/", "/wrong/", client.parts.path[:-2] + "/", "//"):
            status, data, headers = client.request("GET", path, base=base)
            assert (status, json.loads(data)) == (
                403,
                {"error": "this address lacks the token; open the address that earmark review printed"},
            )
            assert "content-security-policy" in headers
    assert client.request("GET", "")[0] == 200
    assert len(client.parts.path) >= 20


def test_other_hosts_origins_and_methods_are_refused(client):
    port = client.parts.port
    long = "127.0.0.1:" + 5000 * "9"
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", "127.0.0.1:1", f"10.1.2.3:{port}", "", long):
        assert client.request("GET", "api/session", Host=host)[0] in (400, 403), host
    assert client.get("api/session", Host=f"localhost:{port}")[0] == 200
    assert client.get("api/session", Origin="http://evil.example")[0] == 403
    assert client.get("api/session", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="cors")[0] == 403
    assert client.request("GET", "", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate")[0] == 200
    assert client.get("api/session", Origin=f"http://127.0.0.1:{port}")[0] == 200
    for method in ("PUT", "DELETE", "OPTIONS"):
        assert client.request(method, "api/session")[0] == 405
    values = {"id": "x", "reviewer": "ada", "action": "checked", "recording": NAMES[0]}
    assert client.post("api/actions", values, content_type="text/plain")[0] == 415
    for body in (b"", b"{", b"[1]", b"[" * 100_000, b"\xff", b'{"since": ' + b"9" * 5000 + b"}"):
        status, data, _ = client.request("POST", "api/actions", body, content_type="application/json")
        assert (status in (400, 422), json.loads(data)) == (True, {"error": "expected a JSON object"}), body[:20]
    assert client.request("POST", "api/actions", b" " * (3 << 20), content_type="application/json")[0] == 413
    assert client.get("api/progress")[1]["number"] == 0


def test_the_page_runs_no_inline_script_and_names_only_its_own_files(client):
    status, data, headers = client.request("GET", "")
    policy = headers["content-security-policy"]
    assert (status, "script-src 'self'" in policy, "unsafe" in policy) == (200, True, False)
    page = data.decode()
    assert "<script>" not in page
    assert "http" not in page.replace("http-equiv", "")
    assert "onclick" not in page
    assert "style=" not in page


@pytest.mark.parametrize(
    "path",
    [
        "static",
        "static/../server.py",
        "static/%2e%2e/server.py",
        "static/..%2fserver.py",
        "api/recordings/-1",
        "api/recordings/99",
        "api/recordings/x",
        "api/recordings/0/tiles/mel/99/0",
        "api/recordings/0/tiles/mel/3/-1",
        "api/recordings/0/tiles/bark/3/0",
        "api/recordings/0/tiles/mel/3/999999999999",
        f"api/recordings/0/tiles/mel/3/{10**400}",  # no float is that large
        "api/recordings/0/sound.wav?onset=11",
        "api/recordings/0/sound.wav?onset=nan",
        "api/recordings/0/sound.wav?onset=2&offset=1",
        "api/recordings/0/probabilities?onset=0&offset=1&points=100000",
        "api/events/nothing",
        "api/events/../../x",
        "api/queue?order=x",
        "api/queue?order=random&seed=-1",
        "api/queue?count=100000",
        "api/queue/77",
        "api/updates?since=x",
        "api/export?format=exe",
        "api/export?which=x",
        "api/nothing",
    ],
)
def test_bad_requests_get_a_clear_answer(steady, path):
    status, answer = steady.get(path)
    assert 400 <= status < 500
    assert isinstance(answer["error"], str)
    assert "Traceback" not in answer["error"]


def test_actions_are_journaled_and_answered_with_what_changed(client, found):
    first = client.get("api/queue")[1]["events"][0]
    status, answer = client.act("verdict", events=[first["id"]], verdict="right")
    assert (status, answer["number"], answer["can"]["undo"]) == (200, 1, "t0")
    assert [(event["id"], event["status"]) for event in answer["events"]] == [(first["id"], "right")]
    assert answer["progress"]["total"] == {"open": 7, "right": 1, "wrong": 0, "unsure": 0, "disputed": 0}
    lines = (found / "verdicts.jsonl").read_text().splitlines()
    assert [json.loads(line)["verdict"] for line in lines] == ["right"]
    again = {"action": "verdict", "events": [first["id"]], "verdict": "wrong"}
    for bad in (
        {**again, "events": ["no"]},
        {**again, "events": []},
        {**again, "since": "x"},
        {**again, "reviewer": 201 * "x"},
        {"action": "x"},
        {"action": ["verdict"]},
        {},
    ):
        status, answer = client.post("api/actions", {"id": "b", "reviewer": "ada", **bad})
        assert (status, "error" in answer) == (400, True), bad
    assert len((found / "verdicts.jsonl").read_text().splitlines()) == 1


def test_markup_in_names_is_text(client):
    assert client.get("api/recordings/1")[1]["name"] == NAMES[1]
    assert client.act("add", recording=NAMES[1], label="<img src=x>", onset=0.0, offset=1.0)[0] == 200
    status, _, headers = client.request("GET", "api/progress")
    assert (status, headers["content-type"], headers["x-content-type-options"]) == (200, "application/json", "nosniff")


def test_a_server_that_is_stopped_leaves_an_up_to_date_table(found):
    (found / "verdicts.jsonl").unlink(missing_ok=True)
    with served(found) as server:
        client = Client(server.url)
        event = client.get("api/queue")[1]["events"][0]
        client.act("verdict", events=[event["id"]], verdict="right")
        client.act("checked", recording=NAMES[1])
    table = read_labels(found / "verdicts.csv")
    assert [tuple(row)[:4] for row in table.of(NAMES[0]) if row.present] == [(NAMES[0], 1.0, 2.0, "owl")]
    assert [(row.label, row.present) for row in table.of(NAMES[1])] == [("dog", False), ("owl", False)]


def test_sound_in_ranges(client):
    status, whole, headers = client.request("GET", "api/recordings/0/sound.wav?onset=1&offset=2.5")
    assert (status, headers["content-type"], headers["accept-ranges"]) == (200, "audio/wav", "bytes")
    samples, rate = soundfile.read(io.BytesIO(whole))
    assert (len(samples), rate) == (int(1.5 * RATE), RATE)
    reference = audio.read(
        Path(client.get("api/session")[1]["folder"]).parent / "sound" / NAMES[0], onset=1, offset=2.5
    )
    np.testing.assert_allclose(samples, reference, atol=2 / 32768)
    for begin, end in ((0, 100), (43, 46), (101, 5001), (len(whole) - 3, len(whole))):
        path = "api/recordings/0/sound.wav?onset=1&offset=2.5"
        status, part, headers = client.request("GET", path, Range=f"bytes={begin}-{end - 1}")
        assert (status, part) == (206, whole[begin:end])
        assert headers["content-range"] == f"bytes {begin}-{end - 1}/{len(whole)}"
    status, _, headers = client.request("GET", path, Range="bytes=9999999-")
    assert (status, headers["content-range"]) == (416, f"bytes */{len(whole)}")
    assert byte_range("bytes=0-1,4-5", 100) is None


def test_probabilities_and_events_of_a_view(client):
    status, answer = client.get("api/recordings/0/probabilities?onset=0&offset=10&points=10")
    assert (status, answer["classes"]) == (200, ["owl", "dog"])
    assert answer["values"][0] == [5, 90, 5, 5, 5, 70, 70, 5, 5, 5]
    seen = client.get("api/recordings/0/events?onset=2.5&offset=5.5")[1]
    assert ([event["label"] for event in seen["events"]], seen["total"]) == (["dog", "owl"], 2)


def test_exports(client, tmp_path, monkeypatch):
    events = client.get("api/queue")[1]["events"]
    client.act("verdict", events=[events[0]["id"]], verdict="right")
    client.act("verdict", events=[events[1]["id"]], verdict="wrong")
    for format in ("csv", "tsv", "json"):
        status, data, headers = client.request("GET", f"api/export?format={format}")
        (tmp_path / f"x.{format}").write_bytes(data)
        assert (status, len(read_labels(tmp_path / f"x.{format}", format))) == (200, 1)
        assert headers["content-disposition"].startswith("attachment")
    for format in ("raven", "audacity", "jams"):
        data = client.request("GET", f"api/export?format={format}&which=all")[1]
        assert len(zipfile.ZipFile(io.BytesIO(data)).namelist()) == 2
    table = client.request("GET", "api/export?format=csv&which=verdicts")[1].decode()
    assert ",3.0,3.5,dog,0\n" in table
    assert client.get("api/export?format=raven&which=verdicts")[0] == 400
    request = {"events": [event["id"] for event in events[:2]], "kind": "flac", "margin": 0.25}
    data = client.request("POST", "api/snippets", json.dumps(request), content_type="application/json")[1]
    archive = zipfile.ZipFile(io.BytesIO(data))
    sound, about = archive.namelist()[0], archive.read("snippets.csv").decode().splitlines()
    samples, rate = soundfile.read(io.BytesIO(archive.read(sound)))
    assert (len(samples), rate, len(about)) == (int(1.5 * RATE), RATE, 3)
    assert sound.startswith("0001-owl-")
    assert client.post("api/snippets", {"events": []})[0] == 400
    assert client.post("api/snippets", {**request, "margin": 10**400})[0] == 400
    monkeypatch.setattr(exporting, "MOST_BYTES", 1000)
    status, answer = client.post("api/snippets", request)
    assert (status, answer["error"]) == (400, "expected at most 0 MiB of sound, got more; select fewer events")


def test_two_servers_see_each_others_verdicts(found, client):
    with served(found) as other:
        second = Client(other.url)
        event = second.get("api/queue")[1]["events"][2]
        second.act("verdict", events=[event["id"]], verdict="wrong")
        changed = client.get("api/updates?since=0")[1]["events"]
        assert [(one["id"], one["status"]) for one in changed] == [(event["id"], "wrong")]


def test_another_host_needs_a_token_or_permission():
    for address, message in (
        (Address(host="0.0.0.0"), "--host 0.0.0.0: other machines could reach this review"),
        (Address(host="0.0.0.0", token="short"), "at least 16 letters"),
        (Address(token="a/../../../../../b"), "at least 16 letters"),
        (Address(token="a" * 16, allow_anyone=True), "cannot be combined"),
        (Address(port=70000), "port: expected 0 to 65535"),
    ):
        with pytest.raises(ArgumentError, match=message):
            address.checked_token()
    assert Address(host="0.0.0.0", allow_anyone=True).checked_token() is None
    assert Address(host="::1").checked_token() != Address().checked_token()


def test_anyone_may_review_where_that_is_allowed(found):
    with served(found, address=Address(port=0, allow_anyone=True)) as server:
        client = Client(server.url)
        assert (client.parts.path, client.get("api/session")[0]) == ("/", 200)


def test_a_port_that_is_taken(found):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with (
            pytest.raises(ArgumentError, match=r"cannot listen on 127\.0\.0\.1, port"),
            served(found, address=Address(port=taken.getsockname()[1])),
        ):
            pass


def test_the_extra_is_named_where_it_is_missing(found, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(MissingExtraError, match=r"earmark\[review\]"):
        running.start_review(found)


def test_from_python(found):
    server = package.review(found, browser=False, block=False, address=Address(port=0))
    assert Client(server.url).get("api/session")[1]["recordings"] == 2
    server.stop()
    with pytest.raises(OSError, match="refused"):
        Client(server.url).get("api/session")


def test_the_command_prints_its_address_and_ends_with_ctrl_c(found):
    command = [sys.executable, "-m", "earmark.cli", "review", found, "--no-browser", "--port", "0"]
    with warm.Popen(command, stdout=warm.PIPE, stderr=warm.PIPE, text=True) as process:
        line = process.stdout.readline()
        assert line.startswith(f"Review of {found}: http://127.0.0.1:")
        assert Client(line.split()[-1]).get("api/session")[0] == 200
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (0, "")
    assert "verdicts.jsonl" in out


def test_commands_that_cannot_work(earmark, tmp_path):
    code, out, err = earmark("review", tmp_path / "nothing")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert earmark("review", tmp_path, "--host", "0.0.0.0")[0] == 2


def test_every_acknowledged_verdict_survives_a_kill(tmp_path):
    events = [(k / 20, k / 20 + 0.04, "owl", 0.5) for k in range(190)]
    found = make_job(tmp_path, events=events, names=NAMES[:1], classes=("owl",))
    command = [sys.executable, "-m", "earmark.cli", "review", found, "--no-browser", "--port", "0"]
    process = warm.Popen(command, stdout=warm.PIPE, text=True)
    client = Client(process.stdout.readline().split()[-1])
    ids = [event["id"] for event in client.get("api/queue?count=500")[1]["events"]]
    acknowledged = {}
    for number, id in enumerate(ids):
        verdict = ("right", "wrong", "unsure")[number % 3]
        if number == 120:  # in the middle, perhaps while a request is being answered
            process.kill()
        try:
            if client.act("verdict", events=[id], verdict=verdict)[0] == 200:
                acknowledged[id] = verdict
        except (OSError, http.client.HTTPException, ValueError):
            break
    process.communicate()
    assert len(acknowledged) >= 119
    with served(found) as server:
        judged = Client(server.url).get("api/queue?status=judged&count=500")[1]["events"]
    assert acknowledged.items() <= {event["id"]: event["status"] for event in judged}.items()
    assert sum(row.is_event for row in read_labels(found / "verdicts.csv")) >= 39
    assert len(judged) <= len(acknowledged) + 1


def tone(path, seconds, hz, rate=RATE):
    audio.write(path, (0.5 * np.sin(2 * np.pi * hz * np.arange(int(seconds * rate)) / rate)).astype(np.float32), rate)
    return Recording(0, path.name, path)


@pytest.mark.parametrize("scale", ["mel", "linear"])
@pytest.mark.parametrize("level", [0, 4, 7, 9, 12])
def test_tiles_show_a_tone_where_it_is(scale, level, tmp_path):
    recording = tone(tmp_path / "a.flac", 600 if level > 7 else 20, 1000)
    about = recording.info()
    tile = compute(recording.path, about, scale, level, 0)
    columns = min(COLUMNS, int(about.duration / column_seconds(level)))
    middle = tile[:, columns // 2].astype(int)
    share = 1000 / (RATE / 2) if scale == "linear" else np.log10(1 + 1000 / 700) / np.log10(1 + 4000 / 700)
    assert abs(np.argmax(middle) - ROWS * (1 - share)) <= (20 if level == 0 else 4)
    assert middle.max() == pytest.approx(255 * (120 - 6) / 120, abs=12)
    assert np.median(middle) < 130
    assert not tile[:, columns:].any()


def test_tiles_join_without_gaps(tmp_path):
    recording = tone(tmp_path / "a.wav", 20, 500)
    about = recording.info()
    first, second = (compute(recording.path, about, "mel", 5, k) for k in (0, 1))
    np.testing.assert_allclose(first[:, -1].astype(int), second[:, 0].astype(int), atol=25)


def test_cached_tiles_are_bounded_and_checked(tmp_path):
    recording = tone(tmp_path / "a.wav", 60, 500)
    cache = TileCache(tmp_path / "cache", most_bytes=20 * ROWS * COLUMNS, most_in_memory=2)
    tiles = [cache.get(recording, "mel", 5, k) for k in range(14)] + [
        cache.get(recording, "mel", 6, k) for k in range(7)
    ]
    cache.get(recording, "linear", 5, 3)
    files = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 20 * ROWS * COLUMNS
    for path in files:
        path.write_bytes(b"damaged")
    again = TileCache(tmp_path / "cache")
    assert again.get(recording, "mel", 5, 0) == tiles[0]
    time.sleep(0.01)
    tone(tmp_path / "a.wav", 60, 900)
    assert again.get(recording, "mel", 5, 0) != tiles[0]


def test_thumbnails_and_damaged_recordings(tmp_path):
    recording = tone(tmp_path / "a.wav", 4, 2000)
    assert thumbnail(recording, 1.0, 2.0).shape == (64, 128)
    assert thumbnail(recording, 3.9, 5.0)[:, -1].max() == 0
    data = (tmp_path / "a.wav").read_bytes()
    (tmp_path / "a.wav").write_bytes(data[: len(data) // 2])  # a recorder that ran out of power
    cut = Recording(0, "a.wav", tmp_path / "a.wav")
    assert (cut.problem(), round(cut.seconds())) == (None, 4)
    assert excerpt(cut.path, 0.0, None).samples == 4 * RATE
    assert compute(cut.path, cut.info(), "mel", 5, 0).any()
    (tmp_path / "b.wav").write_bytes(b"nothing")
    broken = Recording(0, "b.wav", tmp_path / "b.wav")
    assert "b.wav" not in broken.problem()
    assert broken.seconds() == 0


def test_the_events_of_the_job_are_as_they_were_found(client):
    events = client.get("api/queue?status=all")[1]["events"]
    assert [(e["onset"], e["offset"], e["label"], e["confidence"]) for e in events[:4]] == EVENTS
