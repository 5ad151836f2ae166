"""The store of files that tools make: whole files, within bounds, whatever happens meanwhile."""

import errno
import multiprocessing
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caesura.tools.artifacts import OWNERS, ArtifactError, ArtifactStore, note_owner


def names(store):
    return {path.name for path in store.directory.iterdir()}


def aged(artifact, seconds):
    """Make it as if the file had been used so long ago."""
    found = artifact.path.stat()
    then = time.time_ns() - seconds * 10**9
    os.utime(artifact.path, ns=(then, min(then, found.st_mtime_ns)))


def test_put_and_get(tmp_path):
    store = ArtifactStore(tmp_path / "made" / "when needed")
    artifact = store.put(b"picture", "png")
    assert artifact.path.read_bytes() == b"picture"
    assert artifact.url == f"/artifacts/{artifact.name}"
    assert (artifact.media_type, artifact.size_bytes) == ("image/png", 7)
    assert store.get(artifact.name) == artifact
    assert ArtifactStore(store.directory).get(artifact.name) == artifact, "it outlives the process"


def test_the_same_bytes_are_stored_once(tmp_path):
    store = ArtifactStore(tmp_path)
    assert store.put(b"a", "png") == store.put(b"a", "png")
    assert store.put(b"a", "jpg") != store.put(b"a", "png")
    assert len(names(store)) == 2


def test_a_file_that_was_cut_short_is_written_again(tmp_path):
    store = ArtifactStore(tmp_path)
    artifact = store.put(b"whole", "png")
    artifact.path.write_bytes(b"")
    assert store.put(b"whole", "png").path.read_bytes() == b"whole"


def test_too_large_a_file(tmp_path):
    store = ArtifactStore(tmp_path / "none", max_file_bytes=10)
    with pytest.raises(ArtifactError, match="11 bytes; at most 10 are allowed"):
        store.put(b"x" * 11, "png")
    assert not store.directory.exists()


def test_an_unknown_suffix_leaves_no_file(tmp_path):
    store = ArtifactStore(tmp_path / "none")
    with pytest.raises(KeyError):
        store.put(b"x", "exe")
    assert not store.directory.exists()


def test_the_file_used_longest_ago_goes_first(tmp_path):
    store = ArtifactStore(tmp_path, max_bytes=40)
    first, second, third = (store.put(bytes([n]) * 12, "png") for n in range(3))
    for artifact, seconds in ((first, 30), (second, 20), (third, 10)):
        aged(artifact, seconds)
    assert store.get(first.name), "used again now"
    fourth = store.put(b"4" * 12, "png")
    assert names(store) == {first.name, third.name, fourth.name}
    aged(first, 30)
    assert store.put(third.path.read_bytes(), "png") == third
    assert names(store) == {first.name, third.name, fourth.name}, "nothing is deleted in vain"


def test_whose_a_file_is_goes_with_the_file(tmp_path):
    store = ArtifactStore(tmp_path, max_bytes=300)
    first = store.put(b"a" * 200, "txt")
    note_owner([first], "ann")
    note_owner([first], "bob")
    assert [store.belongs_to(first, each) for each in ("ann", "bob", "eve")] == [True, True, False]
    second = store.put(b"b" * 200, "txt")
    note_owner([second], "eve")
    assert store.get(first.name) is None
    assert [each.name for each in (tmp_path / OWNERS).iterdir()] == [f"{second.name}.eve"]


def test_an_owner_that_cannot_be_noted_is_told_in_the_log(tmp_path, caplog):
    (tmp_path / OWNERS).touch()
    artifact = ArtifactStore(tmp_path).put(b"a", "txt")
    note_owner([artifact], "ann")
    assert artifact.name in caplog.text
    assert not ArtifactStore(tmp_path).belongs_to(artifact, "ann")


def test_the_newest_file_stays_even_where_there_is_no_room(tmp_path):
    store = ArtifactStore(tmp_path, max_bytes=10)
    store.put(b"x" * 9, "png")
    newest = store.put(b"y" * 20, "png")
    assert names(store) == {newest.name}


def test_files_of_others_are_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_bytes(b"n" * 1000)
    (tmp_path / "directory").mkdir()
    store = ArtifactStore(tmp_path, max_bytes=10)
    for number in range(5):
        last = store.put(bytes([number]) * 8, "png")
    assert names(store) == {"notes.txt", "directory", last.name}


def test_unfinished_files_go_when_they_are_old(tmp_path):
    store = ArtifactStore(tmp_path)
    old, new = tmp_path / ".part-old", tmp_path / ".part-new"
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (time.time() - 7200,) * 2)
    store.put(b"x", "png")
    assert not old.exists()
    assert new.exists(), "another process may be writing it"


def test_serving_a_file_does_not_change_when_it_was_made(tmp_path):
    store = ArtifactStore(tmp_path)
    artifact = store.put(b"x", "png")
    aged(artifact, 100)
    made = artifact.path.stat().st_mtime_ns
    store.get(artifact.name)
    assert artifact.path.stat().st_mtime_ns == made
    assert time.time() - artifact.path.stat().st_atime < 50


@pytest.mark.parametrize("method", ["write", "replace", "mkdir"])
def test_a_full_disk_is_told_and_leaves_nothing(tmp_path, monkeypatch, method):
    store = ArtifactStore(tmp_path / "files")

    def full(*arguments, **options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    class Full:
        def __init__(self, handle, mode):
            os.close(handle)

        def __enter__(self):
            return self

        def __exit__(self, *exception):
            pass

        write = full

    if method == "write":
        monkeypatch.setattr(os, "fdopen", Full)
    else:
        monkeypatch.setattr(Path, method, full)
    with pytest.raises(ArtifactError, match="No space left on device"):
        store.put(b"x", "png")
    monkeypatch.undo()
    assert not store.directory.exists() or not names(store)
    assert store.put(b"x", "png")


def test_a_directory_that_may_not_be_made(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ArtifactError, match="cannot be stored"):
        ArtifactStore(tmp_path / "file" / "below").put(b"x", "png")


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../secret.txt",
        "/etc/passwd",
        "a" * 24,
        "a" * 24 + ".exe",
        "a" * 24 + ".png\n",
        "A" * 24 + ".png",
        "a" * 23 + "/.png",
        "a" * 24 + ".png/../x",
        ".part-abc",
        "a" * 24 + ".png\0",
    ],
)
def test_names_that_are_none(tmp_path, name):
    (tmp_path / "secret.txt").write_bytes(b"secret")
    (tmp_path / ".part-abc").write_bytes(b"half")
    (tmp_path / "files").mkdir()
    assert ArtifactStore(tmp_path / "files").get(name) is None
    assert ArtifactStore(tmp_path).get(name) is None


def test_links_and_directories_are_no_files(tmp_path):
    (tmp_path / "secret").write_bytes(b"secret")
    link, directory = tmp_path / ("a" * 24 + ".png"), tmp_path / ("b" * 24 + ".png")
    link.symlink_to(tmp_path / "secret")
    directory.mkdir()
    store = ArtifactStore(tmp_path)
    assert store.get(link.name) is None
    assert store.get(directory.name) is None


@given(st.text())
def test_no_text_leads_out_of_the_directory(tmp_path_factory, name):
    store = ArtifactStore(tmp_path_factory.getbasetemp() / "empty")
    assert store.get(name) is None


def test_many_threads_write_the_same_and_different_files(tmp_path):
    store = ArtifactStore(tmp_path, max_bytes=40_000)
    contents = [bytes([number % 7]) * (1_000 + number % 7) for number in range(200)]
    with ThreadPoolExecutor(8) as threads:
        artifacts = list(threads.map(lambda data: store.put(data, "png"), contents))
    assert names(store) == {artifact.name for artifact in artifacts}
    for artifact, data in zip(artifacts, contents, strict=True):
        assert artifact.path.read_bytes() == data


def write_files(directory, seed):
    store = ArtifactStore(directory, max_bytes=20_000)
    for number in range(100):
        store.put(f"{seed} {number}".encode() * 100, "txt")


def test_processes_share_a_directory(tmp_path):
    """They delete one another's files to make room; no write fails for that."""
    spawned = multiprocessing.get_context("spawn")
    processes = [spawned.Process(target=write_files, args=(tmp_path, seed)) for seed in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    store = ArtifactStore(tmp_path, max_bytes=20_000)
    store.put(b"last", "txt")
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 20_000
    assert not [name for name in names(store) if name.startswith(".part-")]
