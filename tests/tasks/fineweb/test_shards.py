"""Shard files: their bytes, and that no broken one is read."""

import struct

import numpy as np
import pytest

from allocsearch.errors import DataError
from allocsearch.tasks.fineweb import shards
from allocsearch.tasks.fineweb.scans import scan_shard, scan_tokens
from allocsearch.tasks.fineweb.shards import (
    ArrayShard,
    MappedShard,
    PartOfShard,
    count_tokens,
    write_shard,
)


def file_bytes(tokens, magic=20240520, version=1, n=None):
    """A shard as the format is described, made without the package."""
    n = len(tokens) if n is None else n
    head = struct.pack("<3i", magic, version, n) + bytes(1012)
    return head + struct.pack(f"<{len(tokens)}H", *tokens)


def test_the_bytes_of_a_file(tmp_path):
    tokens = [0, 1, 50256, 65535]
    write_shard(tmp_path / "a.bin", np.array(tokens, np.uint16))
    assert (tmp_path / "a.bin").read_bytes() == file_bytes(tokens)
    assert [p.name for p in tmp_path.iterdir()] == ["a.bin"]


def test_reading_what_others_wrote(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(file_bytes(range(100)))
    shard = MappedShard(path)
    assert shard.n_tokens == count_tokens(path) == 100
    read = shard.read(10, 5)
    assert read.dtype == np.int32
    assert read.tolist() == [10, 11, 12, 13, 14]
    assert shard.read(98, 5).tolist() == [98, 99]


def test_a_mapping_is_renewed_and_reads_on(tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "_READS_PER_MAPPING", 3)
    path = tmp_path / "a.bin"
    path.write_bytes(file_bytes(range(10)))
    shard = MappedShard(path)
    assert [int(shard.read(i, 1)[0]) for i in range(10)] == list(range(10))


def test_a_part_ends_where_it_should():
    whole = ArrayShard(np.arange(20))
    part = PartOfShard(whole, 5, 4)
    assert part.n_tokens == 4
    assert part.read(1, 2).tolist() == [6, 7]
    assert part.read(2, 9).tolist() == [7, 8]
    assert part.read(4, 1).tolist() == []
    assert part.rows(0, 2, 2, 2).tolist() == [[5, 6], [7, 8]]
    with pytest.raises(IndexError):
        part.rows(1, 2, 2, 2)


def test_rows_are_reads_side_by_side(tmp_path):
    tokens = np.random.default_rng(0).integers(0, 2**16, 200).astype(np.uint16)
    write_shard(tmp_path / "a.bin", tokens)
    for shard in (MappedShard(tmp_path / "a.bin"), ArrayShard(tokens)):
        rows = shard.rows(3, 40, 4, 77)
        assert rows.dtype == np.int32
        expected = [shard.read(3 + 40 * i, 77) for i in range(4)]
        np.testing.assert_array_equal(rows, expected)
        with pytest.raises(IndexError):
            shard.rows(4, 40, 4, 77)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "an empty file"),
        (b"x" * 100, "100 bytes, but the header of a shard alone has 1024"),
        (file_bytes([1, 2], magic=20240801), "first number is 20240801"),
        (file_bytes([1, 2], version=2), "version 2 of the shard format"),
        (file_bytes([1, 2], n=3), "promises 3 tokens, 1030 bytes, but it has 1028"),
        (file_bytes([1, 2])[:-1], "promises 2 tokens, 1028 bytes, but it has 1027"),
        (file_bytes([1, 2]) + b"x", "but it has 1029 bytes"),
        (file_bytes([], n=-1), "promises -1 tokens"),
    ],
)
def test_broken_files(tmp_path, content, words):
    path = tmp_path / "a.bin"
    path.write_bytes(content)
    for read in (MappedShard, scan_shard):
        with pytest.raises(DataError, match=words) as caught:
            read(path)
        assert str(path) in str(caught.value)


def test_a_missing_file(tmp_path):
    with pytest.raises(DataError, match="cannot be read: No such file"):
        MappedShard(tmp_path / "a.bin")


def test_scans_tell_of_changed_files_and_remember_others(tmp_path, monkeypatch):
    import hashlib

    monkeypatch.setenv("ALLOCSEARCH_CACHE_DIR", str(tmp_path / "cache"))
    tokens = (np.arange(2**20) % 50000).astype(np.uint16)
    path = tmp_path / "a.bin"
    write_shard(path, tokens)
    first = scan_shard(path)
    assert first.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert first == scan_tokens(tokens)
    assert first.largest_token == 49999
    (note,) = (tmp_path / "cache" / "scans").iterdir()
    note.write_text(note.read_text().replace("49999", "49998"))
    assert scan_shard(path).largest_token == 49998
    assert scan_shard(path, fresh=True).largest_token == 49999
    note.write_text("spoilt")
    assert scan_shard(path) == first
    tokens[7] = 50001
    write_shard(path, tokens)
    assert scan_shard(path).largest_token == 50001
