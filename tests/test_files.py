"""Files are written whole or not at all, and JSON is read by everybody."""

import json
import os

import numpy as np
import pytest

from earmark.errors import ArgumentError
from earmark.files import json_text, make_folder, remove_drafts, written_whole


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(RuntimeError, match="broken"), written_whole(path) as draft:  # noqa: PT012
        draft.write_text("half")
        raise RuntimeError("broken")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_good_write_replaces(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with written_whole(path) as draft:
        assert draft.suffix == ".txt"
        draft.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_a_file_may_be_read_by_whom_the_mask_lets_read_it(tmp_path, mask, mode):
    before = os.umask(mask)
    try:
        with written_whole(tmp_path / "a.txt") as draft:
            draft.write_text("new")
        with written_whole(tmp_path / "b.txt") as draft:
            (tmp_path / "other").write_text("new")
            (tmp_path / "other").chmod(0o400)
            os.replace(tmp_path / "other", draft)
    finally:
        os.umask(before)
    assert [path.stat().st_mode & 0o777 for path in sorted(tmp_path.iterdir())] == [mode, mode]


def test_a_folder_that_cannot_be(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ArgumentError, match=r"file: cannot create this folder: File exists"):
        make_folder(tmp_path / "file")
    with pytest.raises(ArgumentError, match=r"cannot create this folder: Not a directory"):
        make_folder(tmp_path / "file" / "below")
    assert make_folder(tmp_path / "a" / "b").is_dir()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_to(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(ArgumentError, match="is not writable"):
        make_folder(tmp_path)


def test_json_has_null_for_what_is_no_number():
    nan, inf = float("nan"), float("inf")
    text = json_text({"a": [nan, (1.5, -inf)], "b": {"c": np.float64(nan), "d": None}, "é": [True, 3, "NaN"]}, indent=1)
    assert json.loads(text, parse_constant=pytest.fail) == {
        "a": [None, [1.5, None]],
        "b": {"c": None, "d": None},
        "é": [True, 3, "NaN"],
    }
    assert text.startswith('{\n "a"')
    assert json_text([np.float32(0.5), np.int64(2), np.bool_(True), np.float32(nan)]) == "[0.5, 2, true, null]"


@pytest.mark.parametrize("name", ["a.txt", "a", "a.b~01234567", "a-b.tar.gz", "-settings.toml", "ü\n\udcff.x"])
def test_a_draft_that_was_left_is_removed_and_nothing_else(tmp_path, name):
    path = tmp_path / name
    with written_whole(path) as draft:
        left = draft.name
        draft.write_text("whole")
    others = [".a-original.txt", ".a-20260514.txt", ".a~short.txt", ".a~0123456A.txt", ".a.txt", ".~01234567.txt"]
    others = [path.parent / other for other in [*others, f".b{left[1:]}", left[1:], f"{left}~"]]
    for other in others:
        other.write_text("somebody's")
    (tmp_path / left).write_text("half")
    remove_drafts([path, tmp_path / "gone" / "a.txt"])
    assert set(tmp_path.iterdir()) == {path, *others}


def test_a_file_that_is_named_like_a_draft_is_none(tmp_path):
    files = [tmp_path / "a.txt", tmp_path / ".a~01234567.txt"]
    for file in files:
        file.write_text("whole")
    remove_drafts(files)
    assert all(file.exists() for file in files)
