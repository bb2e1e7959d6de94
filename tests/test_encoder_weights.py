"""Weights of encoders: where they lie, downloads from a real server that misbehaves, and the command."""

import hashlib
import http.server
import io
import json
import re
import socket
import subprocess
import sys
import threading
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np
import pytest

from earmark.cli.app import main
from earmark.encoders import Card, load, weights
from earmark.encoders.mn04 import Mn04
from earmark.errors import ArgumentError, DownloadError, ModelFileError

CONTENT = np.random.default_rng(0).bytes(300_000)
HALF = 100_000  # bytes after which a connection is cut


class Server(http.server.ThreadingHTTPServer):
    """Serves CONTENT under names that say how; `requests` has the path and Range header of each request."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests = []
        self.url = f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request, client_address):
        """A client that hangs up is no error here."""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        kind, wanted = self.path.split("/")[1], self.headers["Range"]
        self.server.requests.append((kind, wanted))
        if kind == "gone":
            return self.send_error(404)
        if kind == "moved":
            self.send_response(302)
            self.send_header("Location", "/whole/w.bin")
            self.send_header("Content-Length", "0")
            return self.end_headers()
        if kind == "refuses" and wanted:
            return self.send_error(416)
        content = {"wrong": b"x" * len(CONTENT), "short": CONTENT[:-1], "long": CONTENT + b"x"}.get(kind, CONTENT)
        start = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1]) if wanted and kind not in ("norange", "hopeless") else 0
        if kind == "astray" and start:
            start -= 1
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        if kind == "endless":
            self.send_header("Connection", "close")
            self.close_connection = True
        else:
            self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        if kind == "endless":
            content = CONTENT * 3
        is_cut = kind in ("cut", "hopeless") and start == 0
        self.wfile.write(content[start : start + HALF] if is_cut else content[start:])
        self.wfile.flush()
        if is_cut:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
        return None

    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def server():
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch, server):
    monkeypatch.setenv("EARMARK_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(weights, "_PAUSE", 0.0)
    server.requests.clear()
    return tmp_path / "home"


def card(server, kind="whole"):
    return Card(
        name="fake",
        rate=8000,
        window_samples=8000,
        hop_samples=800,
        dimension=4,
        licence="MIT",
        source=f"{server.url}/{kind}/w.bin?generation=1",
        sha256=hashlib.sha256(CONTENT).hexdigest(),
        size=len(CONTENT),
        notice="MIT License\n",
    )


def files(home):
    return sorted(path.name for path in (home / "encoders" / "fake").iterdir() if not path.name.startswith("."))


def test_weights_lie_in_the_folder_of_the_user(server, home, monkeypatch):
    assert weights.path_of(card(server)) == home / "encoders" / "fake" / "w.bin"
    monkeypatch.delenv("EARMARK_HOME")
    assert weights.home().name == "earmark"


@pytest.mark.parametrize("kind", ["whole", "moved"])
def test_a_download_is_whole_and_has_its_licence(kind, server, home):
    seen = []
    assert weights.find(card(server)) is None
    path = weights.get(card(server, kind), on_progress=seen.append)
    assert path.read_bytes() == CONTENT == weights.read(card(server))
    assert path == weights.find(card(server))
    assert files(home) == ["LICENCE.txt", "w.bin"]
    assert (path.parent / "LICENCE.txt").read_text() == "MIT License\n"
    assert (seen[-1].done, seen[-1].total, seen[-1].unit) == (0.3, 0.3, "MB")
    server.requests.clear()
    assert weights.get(card(server)) == path  # already there
    assert server.requests == []


def test_a_connection_that_is_cut_is_resumed(server, home):
    path = weights.get(card(server, "cut"))
    assert path.read_bytes() == CONTENT
    assert server.requests == [("cut", None), ("cut", f"bytes={HALF}-")]
    assert files(home) == ["LICENCE.txt", "w.bin"]


def test_a_later_call_continues_where_an_earlier_one_ended(server, home, monkeypatch):
    monkeypatch.setattr(weights, "_ATTEMPTS", 1)
    with pytest.raises(DownloadError, match="the connection was cut after 100,000 of 300,000 bytes; run the same") as e:
        weights.get(card(server, "cut"))
    assert str(weights.path_of(card(server))) in str(e.value)
    assert files(home) == ["w.bin.part"]
    assert weights.find(card(server)) is None
    assert weights.get(card(server, "whole")).read_bytes() == CONTENT
    assert server.requests[-1] == ("whole", f"bytes={HALF}-")
    assert files(home) == ["LICENCE.txt", "w.bin"]


def test_an_interrupted_download_is_continued(server, home):
    def interrupt(progress):
        if progress.done > 0.1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        weights.get(card(server), on_progress=interrupt)
    assert files(home) == ["w.bin.part"]
    assert weights.get(card(server)).read_bytes() == CONTENT
    assert server.requests[1][1] is not None


@pytest.mark.parametrize("kind", ["norange", "refuses", "astray"])
def test_servers_that_cannot_continue_start_again(kind, server, home):
    part = weights.path_of(card(server)).with_name("w.bin.part")
    part.parent.mkdir(parents=True)
    part.write_bytes(CONTENT[:1000])
    assert weights.get(card(server, kind)).read_bytes() == CONTENT
    assert server.requests[0] == (kind, "bytes=1000-")
    assert files(home) == ["LICENCE.txt", "w.bin"]


def test_a_part_that_is_not_the_beginning_is_dropped(server, home):
    part = weights.path_of(card(server)).with_name("w.bin.part")
    part.parent.mkdir(parents=True)
    part.write_bytes(b"x" * 1000)
    assert weights.get(card(server)).read_bytes() == CONTENT
    assert server.requests == [("whole", "bytes=1000-"), ("whole", None)]


@pytest.mark.parametrize(("size", "requests"), [(len(CONTENT), 0), (len(CONTENT) + 1, 1)])
def test_parts_that_are_complete_or_too_long(size, requests, server):
    part = weights.path_of(card(server)).with_name("w.bin.part")
    part.parent.mkdir(parents=True)
    part.write_bytes((CONTENT + b"x")[:size])
    assert weights.get(card(server)).read_bytes() == CONTENT
    assert len(server.requests) == requests


def test_a_connection_that_is_always_cut_ends_and_keeps_what_it_has(server, home):
    with pytest.raises(DownloadError, match="run the same command again to continue"):
        weights.get(card(server, "hopeless"))
    assert len(server.requests) == 5
    assert files(home) == ["w.bin.part"]


@pytest.mark.parametrize(
    ("kind", "error", "message"),
    [
        (
            "wrong",
            ModelFileError,
            "expected the SHA-256 .* of fake, got .*: damaged, or another version; the download was",
        ),
        ("short", DownloadError, "expected 300,000 bytes, the server has 299,999"),
        ("long", DownloadError, "expected 300,000 bytes, the server has 300,001"),
        ("endless", DownloadError, "expected 300,000 bytes, the server sends more"),
        ("gone", DownloadError, "the server returned 404 Not Found; download it elsewhere and use: earmark encoders"),
    ],
)
def test_what_the_server_has_is_not_what_is_wanted(kind, error, message, server, home):
    with pytest.raises(error, match=message) as raised:
        weights.get(card(server, kind))
    assert "\n" not in str(raised.value)
    assert f"{server.url}/{kind}/w.bin" in str(raised.value)
    assert weights.find(card(server)) is None
    assert files(home) in ([], ["w.bin.part"])
    weights.get(card(server, "whole"))  # whatever was left behind


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("http://127.0.0.1:{port}/w", "connection refused; download it elsewhere"),
        ("http://nowhere.invalid/w", "; download it elsewhere and use: earmark encoders get fake --from FILE"),
        ("http://[::1/w", "; download it elsewhere"),
        ("http://", "; download it elsewhere"),
        ("ftp://x/w", "expected a file or a URL that begins with https:// or http://, got 'ftp://x/w'"),
        ("file:///etc/passwd", "expected a file or a URL that begins with"),
        ("nothing.bin", "nothing.bin: no such file"),
        (".", ".: a folder, not a file"),
    ],
)
def test_sources_that_are_not_there(source, message, server, home):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises((ArgumentError, DownloadError), match=re.escape(message)) as error:
            weights.get(card(server), source.format(port=unused.getsockname()[1]))
    if isinstance(error.value, DownloadError):
        assert str(weights.path_of(card(server))) in str(error.value)


def test_a_server_that_says_nothing_is_given_up(server, monkeypatch):
    monkeypatch.setattr(weights, "TIMEOUT", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"http://127.0.0.1:{mute.getsockname()[1]}/w"
        with pytest.raises(DownloadError, match=r"no answer within 0\.1 s"):
            weights.get(card(server), url)


def test_files_are_copied_if_they_are_right(server, home, tmp_path):
    good, bad, short = (tmp_path / name for name in ("good", "bad", "short"))
    good.write_bytes(CONTENT)
    bad.write_bytes(CONTENT[:-1] + b"x")
    short.write_bytes(b"")
    with pytest.raises(ModelFileError, match="bad: expected the SHA-256"):
        weights.get(card(server), bad)
    with pytest.raises(ModelFileError, match="short: expected 300,000 bytes, got 0"):
        weights.get(card(server), str(short))
    assert files(home) == []
    assert weights.get(card(server), good).read_bytes() == CONTENT
    assert server.requests == []


def test_a_strange_file_in_the_place_of_weights_is_not_replaced(server, tmp_path):
    path = weights.path_of(card(server))
    path.parent.mkdir(parents=True)
    path.write_bytes(b"mine")
    with pytest.raises(ArgumentError, match="earmark did not write it"):
        weights.get(card(server))
    assert server.requests == []
    with pytest.raises(ModelFileError, match="expected 300,000 bytes, got 4"):
        weights.read(card(server))
    assert weights.get(card(server), force=True).read_bytes() == CONTENT
    path.write_bytes(CONTENT[:-1] + b"x")
    with pytest.raises(ModelFileError, match=r"w\.bin: expected the SHA-256"):
        weights.read(card(server))


def test_links_are_not_written_through(server, tmp_path):
    part = weights.path_of(card(server)).with_name("w.bin.part")
    part.parent.mkdir(parents=True)
    (tmp_path / "mine").write_bytes(b"mine")
    part.symlink_to(tmp_path / "mine")
    with pytest.raises(ArgumentError, match="refusing to write through a symbolic link"):
        weights.get(card(server))
    assert (tmp_path / "mine").read_bytes() == b"mine"


def test_missing_weights_are_one_line_with_the_command_and_the_place(home):
    with pytest.raises(ModelFileError) as error:
        load("mn04")
    assert str(error.value) == (
        "encoder 'mn04': its weights are not on this machine; download them with: earmark encoders get mn04, or save "
        f"{Mn04.card.source} as {home}/encoders/mn04/mn04_as_mAP_432.pt"
    )


# --- the command ---


def earmark(*args):
    """Run the command in this process."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["earmark", *map(str, args)])
        with pytest.raises(SystemExit) as ended:
            main()
    return subprocess.CompletedProcess(args, ended.value.code, out.getvalue(), err.getvalue())


@pytest.fixture
def published(server, monkeypatch):
    """mn04, as if the server had published it with CONTENT."""
    fake = card(server)
    names = ("rate", "window_samples", "hop_samples", "dimension", "licence", "notice")
    facts = {name: getattr(Mn04.card, name) for name in names}
    published = Card(name="mn04", source=fake.source, sha256=fake.sha256, size=fake.size, **facts)
    monkeypatch.setattr(Mn04, "card", published)
    return published


NAMES = ["birdnet", "mn04", "yamnet", "hear:PACKAGE", "python:MODULE:NAME", "files:FOLDER", "onnx:CARD.toml"]


def test_the_list_says_what_is_present(published, home):
    lines = earmark("encoders").stdout.splitlines()
    assert lines[0].split() == ["name", "licence", "size", "hop", "dimension", "present", "summary"]
    assert lines[2].split()[:8] == ["mn04", "MIT", "0.3", "MB", "0.16", "s", "512", "no"]
    assert [line.split()[0] for line in lines[1:]] == NAMES
    done = earmark("encoders", "get", "mn04")
    path = home / "encoders" / "mn04" / "w.bin"
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{path}, 0.3 MB, licence MIT\n", "")
    rows = {row["name"]: row for row in json.loads(earmark("encoders", "--json").stdout)["encoders"]}
    assert (rows["mn04"]["present"], rows["mn04"]["path"], rows["mn04"]["hop"]) == (True, str(path), 0.16)
    assert (rows["yamnet"]["present"], rows["yamnet"]["licence"]) == (False, "Apache-2.0")
    assert [name for name, row in rows.items() if row["imports_code"]] == ["hear:PACKAGE", "python:MODULE:NAME"]
    assert "tiny" not in rows


def test_the_page_about_encoders_shows_the_list_and_its_examples_are_python():
    page = (Path(__file__).parents[1] / "docs" / "encoders.md").read_text(encoding="utf-8")
    shown = re.search(r"\$ earmark encoders\n(.*?)```", page, re.S)[1]
    assert shown.replace(" yes ", " no  ") == earmark("encoders").stdout
    for block in re.findall(r"```python\n(.*?)```", page, re.S):
        compile(block, "docs/encoders.md", "exec")


def test_get_takes_a_file_and_prints_json(published, tmp_path):
    (tmp_path / "w").write_bytes(CONTENT)
    done = earmark("encoders", "get", "mn04", "--from", tmp_path / "w", "--json")
    assert json.loads(done.stdout)["path"] == str(weights.path_of(published))


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["get", "mn05"], "earmark: encoder='mn05' is not known; did you mean 'mn04'? Choose from: mn04, yamnet\n"),
        (["get", "tiny"], "earmark: encoder='tiny' is not known. Choose from: mn04, yamnet\n"),
        (["get"], "earmark: Missing argument 'NAME'."),
        (["got"], "earmark: No such command 'got'."),
        (["get", "mn04", "--from", "nothing.bin"], "earmark: nothing.bin: no such file\n"),
        (["get", "mn04", "--from", ""], "earmark: expected a value after --from, got an empty text\n"),
        (["get", "mn04", "--from", "{}/gone/w"], "earmark: {}/gone/w: the server returned 404 Not Found; download it"),
        (["get", "mn04", "--from", "{}/wrong/w"], "earmark: {}/wrong/w: expected the SHA-256 "),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(args, message, server, published):
    done = earmark("encoders", *(arg.replace("{}", server.url) for arg in args))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(message.replace("{}", server.url))
    assert done.stderr.count("\n") == 1


def test_help_has_examples():
    assert "Example: earmark encoders\n" in earmark("encoders", "--help").stdout
    assert "Example: earmark encoders get mn04\n" in earmark("encoders", "get", "--help").stdout
