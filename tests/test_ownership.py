"""A command replaces and deletes only files that it wrote itself."""

import os
import time

import pytest

from earmark.errors import ArgumentError, DataError
from earmark.files import locked, written_whole
from earmark.ownership import MANIFEST, other_files_note, owned, replacing_nothing


def write(path, text):
    with written_whole(path) as draft:
        draft.write_text(text)


def test_own_files_are_replaced_others_are_not(tmp_path):
    theirs = tmp_path / "theirs.txt"
    theirs.write_text("theirs")
    with owned(tmp_path):
        write(tmp_path / "own.txt", "1")
    with owned(tmp_path):
        write(tmp_path / "own.txt", "2")
        with pytest.raises(ArgumentError, match=r"theirs.txt exists, .* since; move it or choose another place$"):
            write(theirs, "earmark's")
    for force, remedy in ((None, "another place$"), (False, r"or use --force \(force=True\) to replace it$")):
        with pytest.raises(ArgumentError, match=remedy), owned(tmp_path, files=[theirs], force=force):
            raise AssertionError("refused before any work")
    assert theirs.read_text() == "theirs"
    assert (tmp_path / "own.txt").read_text() == "2"
    assert sorted(os.listdir(tmp_path)) == [MANIFEST, "own.txt", "theirs.txt"]


def test_an_edited_file_is_not_replaced_but_by_force(tmp_path):
    path = tmp_path / "events.tsv"
    with owned(tmp_path):
        write(path, "found")
    path.write_text("corrected by hand")
    with pytest.raises(ArgumentError, match="changed since"), owned(tmp_path, files=[path]):
        raise AssertionError("refused before any work")
    with owned(tmp_path) as owner:
        assert not owner.remove(path)
    assert path.read_text() == "corrected by hand"
    with owned(tmp_path, files=[path], force=True):
        write(path, "found again")
    assert path.read_text() == "found again"
    with owned(tmp_path) as owner:
        assert owner.remove(path)
    assert not path.exists()


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_file_that_was_being_replaced_when_the_process_died_is_still_earmark_s(tmp_path, monkeypatch, moment):
    path = tmp_path / "a.txt"
    with owned(tmp_path):
        write(path, "old")
    replace = os.replace

    def dies(*names):
        if moment == "after":
            replace(*names)
        raise KeyboardInterrupt

    with owned(tmp_path), monkeypatch.context() as patch:
        patch.setattr(os, "replace", dies)
        with pytest.raises(KeyboardInterrupt):
            write(path, "new")
    assert path.read_text() == {"before": "old", "after": "new"}[moment]
    with owned(tmp_path, files=[path]):
        write(path, "newer")
    assert path.read_text() == "newer"


def test_nothing_is_written_or_deleted_through_a_link(tmp_path):
    elsewhere, root = tmp_path / "elsewhere", tmp_path / "root"
    elsewhere.mkdir()
    root.mkdir()
    (elsewhere / "a.png").write_text("theirs")
    (root / "figures").symlink_to(elsewhere)
    with owned(root) as owner, pytest.raises(ArgumentError, match="refusing to write through a symbolic link"):
        write(root / "figures" / "b.png", "drawn")
    with owned(root) as owner:
        assert not owner.remove(root / "figures" / "a.png")
    assert os.listdir(elsewhere) == ["a.png"]
    (tmp_path / "link").symlink_to(root)  # the folder itself may be reached through one
    with owned(tmp_path / "link"):
        write(tmp_path / "link" / "own.txt", "1")
    with owned(root):
        write(root / "own.txt", "2")


def test_a_damaged_manifest_makes_files_foreign_not_earmark_s(tmp_path):
    with owned(tmp_path):
        write(tmp_path / "a.txt", "1")
    for damage in ("", "{", "[]\n", '{"file": 3}\n', "[" * 100_000 + "\n", '{"file": "a.txt", "sha256": [1]}\n'):
        (tmp_path / MANIFEST).write_text(damage)
        with owned(tmp_path), pytest.raises(ArgumentError, match="did not write it"):
            write(tmp_path / "a.txt", "2")
    assert (tmp_path / "a.txt").read_text() == "1"


def test_names_in_a_manifest_are_never_paths_elsewhere(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "theirs.txt").write_text("theirs")
    with owned(root) as owner, pytest.raises(DataError, match="is not below"):
        owner.remove(root / ".." / "theirs.txt")
    assert (tmp_path / "theirs.txt").exists()


def test_the_command_line_replaces_nothing_outside_its_folders(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("theirs")
    with replacing_nothing():
        with pytest.raises(ArgumentError, match="did not write it"):
            write(path, "earmark's")
        write(path, "theirs")  # nothing changes
        write(tmp_path / "b.txt", "new")
    write(path, "a caller of the library decides")


def test_files_of_the_user_in_a_folder_to_write_to_are_pointed_out(tmp_path):
    with owned(tmp_path):
        write(tmp_path / "own.txt", "1")
        (tmp_path / "figures").mkdir()
        write(tmp_path / "figures" / "own.txt", "1")
    (tmp_path / ".hidden").touch()
    assert other_files_note(tmp_path) == other_files_note(tmp_path / "nowhere") == ""
    (tmp_path / "notes.txt").touch()
    assert other_files_note(tmp_path) == f"{tmp_path} already contains other files, which stay as they are: notes.txt"


def test_two_owners_see_what_the_other_wrote(tmp_path):
    with owned(tmp_path) as first:
        write(tmp_path / "a.txt", "1")
    with owned(tmp_path) as second:
        write(tmp_path / "a.txt", "2")
    assert first.is_own(tmp_path / "a.txt")
    assert second.is_own(tmp_path / "a.txt")


def test_a_lock_names_its_holder_and_ends_with_it(tmp_path):
    holder = rf"process {os.getpid()} on .* is using this folder"
    with locked(tmp_path), pytest.raises(ArgumentError, match=holder), locked(tmp_path):
        raise AssertionError("held twice")
    with locked(tmp_path):
        pass
    (tmp_path / ".lock.json").write_text('{"process": 1, "host": "gone", "command": "dead"}')  # of a killed process
    with locked(tmp_path):
        pass


def test_a_holder_that_has_not_written_its_name_yet_is_named_a_moment_later(tmp_path, monkeypatch):
    name = '{"process": 12, "host": "here", "command": "earmark train"}'
    with locked(tmp_path):
        (tmp_path / ".lock.json").write_text("")
        monkeypatch.setattr(time, "sleep", lambda seconds: (tmp_path / ".lock.json").write_text(name))
        with pytest.raises(ArgumentError, match=r"process 12 on here \(earmark train\) is using"), locked(tmp_path):
            raise AssertionError("held twice")


@pytest.mark.parametrize("is_link", [True, False], ids=["link", "file"])
def test_a_file_of_the_user_that_is_named_as_the_one_that_names_the_holder_stays(tmp_path, is_link):
    """It was written through links, and deleted at the end."""
    theirs = tmp_path / "theirs.json"
    theirs.write_text('{"lock": "of a program of the user"}')
    job = tmp_path / "job"
    job.mkdir()
    if is_link:
        (job / ".lock.json").symlink_to(theirs)
    else:
        theirs.rename(job / ".lock.json")
    with locked(job), pytest.raises(ArgumentError, match="another process is using this folder"), locked(job):
        raise AssertionError("held twice")
    assert (job / ".lock.json").read_text() == '{"lock": "of a program of the user"}'


@pytest.mark.parametrize("name", [".lock", MANIFEST])
def test_nothing_is_written_through_links_named_as_state_files(tmp_path, name):
    theirs = tmp_path / "theirs.txt"
    theirs.write_text("theirs")
    job = tmp_path / "job"
    job.mkdir()
    (job / name).symlink_to(theirs)
    with pytest.raises(ArgumentError, match="refusing to write through a symbolic link"), locked(job), owned(job):
        write(job / "a.txt", "1")
    assert theirs.read_text() == "theirs"
    assert not (job / "a.txt").exists()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
@pytest.mark.parametrize("name", [".lock.json", MANIFEST])
def test_a_pipe_named_as_a_state_file_does_not_stop_a_command(tmp_path, name):
    """Opening one waits for a writer, for ever."""
    os.mkfifo(tmp_path / name)
    with locked(tmp_path):
        if name == MANIFEST:
            with pytest.raises(ArgumentError, match="expected a file"), owned(tmp_path):
                write(tmp_path / "a.txt", "1")


def test_a_line_of_the_manifest_that_was_cut_short_costs_no_other(tmp_path):
    with owned(tmp_path):
        write(tmp_path / "a.txt", "1")
    with (tmp_path / MANIFEST).open("a") as manifest:
        manifest.write('{"file": "b.txt", "sha')  # by a full disk, or a process that died
    with owned(tmp_path):
        write(tmp_path / "a.txt", "2")
    with owned(tmp_path) as owner:
        assert owner.is_own(tmp_path / "a.txt")
