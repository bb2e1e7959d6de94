"""What differs between operating systems, with the calls of the others played."""

import os
import sys
from types import SimpleNamespace

import pytest

from earmark import platforms
from earmark.reviewing.journal import Journal, parse_entry


def test_macos_flushes_the_cache_of_the_drive(tmp_path, monkeypatch):
    calls = []
    fake = SimpleNamespace(F_FULLFSYNC=51, fcntl=lambda *given: calls.append(given))
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setitem(sys.modules, "fcntl", fake)
    monkeypatch.setattr(os, "fsync", lambda handle: calls.append("fsync"))
    platforms.sync(7)
    assert calls == [(7, 51)]

    def refuse(*given):
        raise OSError("not on this file system")

    fake.fcntl = refuse
    platforms.sync(7)
    assert calls[1:] == ["fsync"]


def test_windows_flushes_files_by_a_handle_that_may_write_and_no_folders(tmp_path, monkeypatch):
    path = tmp_path / "a"
    path.write_bytes(b"x")
    flags = []
    opened = os.open
    monkeypatch.setattr(os, "name", "nt")
    monkeypatch.setattr(os, "open", lambda path, flag: flags.append(flag) or opened(path, flag))
    platforms.flush(path)
    platforms.flush(tmp_path)
    assert flags == [os.O_RDWR]


def test_windows_waits_for_readers_of_the_file_that_is_replaced(tmp_path, monkeypatch):
    source, target = tmp_path / "new", tmp_path / "old"
    source.write_text("new")
    target.write_text("old")
    busy = [PermissionError(13, "in use")] * 3
    replace = os.replace

    def refuse_at_first(*paths):
        if busy:
            raise busy.pop()
        replace(*paths)

    monkeypatch.setattr(os, "replace", refuse_at_first)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with pytest.raises(PermissionError):  # elsewhere, waiting does not help
        platforms.replace(source, target)
    monkeypatch.setattr(os, "name", "nt")
    platforms.replace(source, target)
    assert target.read_text() == "new"


def test_what_is_appended_are_bytes_without_other_line_ends(tmp_path, monkeypatch):
    flags, real = [], os.open
    with monkeypatch.context() as patch:
        patch.setattr(os, "O_BINARY", 1 << 15, raising=False)
        patch.setattr(os, "open", lambda path, flag, mode: flags.append(flag) or real(path, flag & ~(1 << 15), mode))
        platforms.append_line(tmp_path / "a", b"line\n")
    assert (tmp_path / "a").read_bytes() == b"line\n"
    assert flags[0] & 1 << 15
    assert flags[0] & os.O_APPEND


def test_the_journal_is_written_without_pread_which_windows_lacks(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "pread")
    path = tmp_path / "verdicts.jsonl"
    path.write_bytes(b'{"cut sho')
    for id in ("a", "b"):
        action = {"id": id, "reviewer": "ada", "action": "checked", "recording": "night.wav"}
        assert Journal(path).append(parse_entry(action))
    assert [line[:6] for line in path.read_bytes().splitlines()] == [b'{"cut ', b'{"id":', b'{"id":']


def test_commands_print_what_the_encoding_of_a_pipe_lacks(tmp_path, monkeypatch, earmark):
    from earmark.cli.terminal import escaped_output

    with open(tmp_path / "pipe", "w", encoding="cp1252") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        with escaped_output():
            print("\N{GREEK SMALL LETTER ALPHA} \N{EN DASH}")
    assert (tmp_path / "pipe").read_text(encoding="cp1252") == "\\u03b1 \N{EN DASH}\n"
