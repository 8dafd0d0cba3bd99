"""Documents to shards: the bytes, and that no interruption changes them."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from allocsearch.errors import AllocsearchError, DataError
from allocsearch.tasks.fineweb import encoding
from allocsearch.tasks.fineweb.documents import LocalFiles
from allocsearch.tasks.fineweb.ingest_state import locked, read_manifest
from allocsearch.tasks.fineweb.ingestion import Part, Section, ingest
from allocsearch.tasks.fineweb.preparation import local_sections
from allocsearch.tasks.fineweb.shards import MappedShard, write_shard
from allocsearch.tasks.fineweb.tokenization import Bytes, load_tokenizer, train_bpe

END = 256


@pytest.fixture(autouse=True)
def few_pieces(monkeypatch, tmp_path):
    """Small batches, so that there are several."""
    monkeypatch.setattr(encoding, "_MOST_PIECES", 3)
    monkeypatch.setenv("ALLOCSEARCH_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def texts(tmp_path):
    """A folder with two training files and one to validate on, and their documents."""
    draw = random.Random(0)

    def documents(n):
        return ["x" * draw.randrange(1, 40) + f"{i}\n" for i in range(n)]

    splits = {"train-0": documents(9), "train-1": documents(8), "val-0": documents(5)}
    folder = tmp_path / "texts"
    folder.mkdir()
    for name, lines in splits.items():
        rows = "\n".join(json.dumps({"text": text}) for text in lines)
        (folder / f"{name}.jsonl").write_text(rows)
    return folder, splits


def plain_tokens(documents):
    """What shards must hold, by a plain loop."""
    tokens = []
    for text in documents:
        tokens += [END, *text.encode()]
    return tokens


def made(folder):
    """Every file of a folder of shards, by name."""
    return {
        p.name: p.read_bytes()
        for p in sorted(folder.iterdir())
        if not p.name.startswith(".")
    }


def tokens_of(folder, split):
    manifest = read_manifest(folder)
    parts = []
    for shard in manifest.shards:
        if shard.split == split:
            mapped = MappedShard(folder / shard.name)
            assert mapped.n_tokens == shard.n_tokens
            parts.append(mapped.read(0, mapped.n_tokens))
    return np.concatenate(parts).tolist()


def test_shards_hold_all_documents_in_order(texts, tmp_path):
    folder, splits = texts
    sections = local_sections(folder)
    manifest = ingest(sections, Bytes(), tmp_path / "out", shard_tokens=50)
    assert manifest.complete
    assert manifest.n_documents == 22
    train = plain_tokens(splits["train-0"] + splits["train-1"])
    assert tokens_of(tmp_path / "out", "train") == train
    assert tokens_of(tmp_path / "out", "valid") == plain_tokens(splits["val-0"])
    of_train = [s for s in manifest.shards if s.split == "train"]
    assert {s.n_tokens for s in of_train[:-1]} == {50}
    assert manifest.shards[0].name == "fineweb_val_000000.bin"
    assert (
        of_train[0].name
        == f"fineweb_train_{len(manifest.shards) - len(of_train):06}.bin"
    )


@pytest.mark.parametrize("shard_tokens", [21, 64, 10_000])
def test_an_interruption_anywhere_changes_nothing(texts, tmp_path, shard_tokens):
    folder, _ = texts
    sections = local_sections(folder)
    options = {"shard_tokens": shard_tokens}
    straight = tmp_path / "straight"
    ingest(sections, Bytes(), straight, **options)
    out = tmp_path / "out"
    n_interruptions, complete = 0, False
    while not complete:
        calls = iter(range(1 + n_interruptions))

        def stop(_, calls=calls):
            if next(calls, None) is None:
                raise KeyboardInterrupt

        try:
            complete = ingest(sections, Bytes(), out, progress=stop, **options).complete
        except KeyboardInterrupt:
            n_interruptions += 1
    assert n_interruptions > 2
    assert made(out) == made(straight)


def test_an_interruption_while_a_file_is_written_changes_nothing(
    texts, tmp_path, monkeypatch
):
    folder, _ = texts
    sections = local_sections(folder)
    ingest(sections, Bytes(), tmp_path / "straight", shard_tokens=40)
    out, replace, messages = tmp_path / "out", os.replace, []
    for fail_at in range(200):
        calls = iter(range(fail_at))

        def failing(*args, calls=calls):
            if next(calls, None) is None:
                raise OSError(28, "No space left on device", str(args[1]))
            replace(*args)

        monkeypatch.setattr(os, "replace", failing)
        try:
            ingest(sections, Bytes(), out, shard_tokens=40)
        except DataError as error:
            messages.append(str(error))
            continue
        break
    assert len(messages) > 3
    said = "cannot be written: No space left on device"
    assert all(said in message for message in messages)
    assert made(out) == made(tmp_path / "straight")


def test_batches_of_another_size_go_on_all_the_same(texts, tmp_path, monkeypatch):
    folder, _ = texts
    sections = local_sections(folder)
    ingest(sections, Bytes(), tmp_path / "straight", shard_tokens=130)

    def stop(so_far):
        if so_far.n_shards > 2:
            raise KeyboardInterrupt

    out = tmp_path / "out"
    monkeypatch.setattr(encoding, "_MOST_PIECES", 8)
    with pytest.raises(KeyboardInterrupt):
        ingest(sections, Bytes(), out, shard_tokens=130, progress=stop)
    assert read_manifest(out).place["piece"] > 2
    monkeypatch.setattr(encoding, "_MOST_PIECES", 2)
    ingest(sections, Bytes(), out, shard_tokens=130)
    for split in ("valid", "train"):
        assert tokens_of(out, split) == tokens_of(tmp_path / "straight", split)


_SLOWLY = """
import sys, time
from pathlib import Path
from allocsearch.tasks.fineweb import encoding
from allocsearch.tasks.fineweb.ingestion import ingest
from allocsearch.tasks.fineweb.preparation import local_sections
from allocsearch.tasks.fineweb.tokenization import Bytes

encoding._MOST_PIECES = 1
ingest(local_sections(Path(sys.argv[1])), Bytes(), Path(sys.argv[2]), shard_tokens=20,
       progress=lambda so_far: time.sleep(0.05))
"""


def test_killed_at_any_time_it_loses_nothing(texts, tmp_path, monkeypatch):
    folder, _ = texts
    monkeypatch.setattr(encoding, "_MOST_PIECES", 1)
    ingest(local_sections(folder), Bytes(), tmp_path / "straight", shard_tokens=20)
    out, n_kills = tmp_path / "out", 0
    command = [sys.executable, "-c", _SLOWLY, str(folder), str(out)]
    for wanted in (2, 9, 17):
        process = subprocess.Popen(command)
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline:
            if out.exists() and len(list(out.glob("*.bin"))) >= wanted:
                process.send_signal(signal.SIGKILL)
                n_kills += 1
                break
            time.sleep(0.002)
        process.wait()
    assert n_kills == 3
    subprocess.run(command, check=True, timeout=60)
    assert made(out) == made(tmp_path / "straight")


def test_the_number_of_processes_makes_no_difference(texts, tmp_path):
    folder, _ = texts
    sections = local_sections(folder)
    for processes in (1, 2):
        out = tmp_path / f"by-{processes}"
        ingest(sections, Bytes(), out, shard_tokens=50, processes=processes)
    assert made(tmp_path / "by-1") == made(tmp_path / "by-2")


def test_limits_are_kept_to_the_token(texts, tmp_path):
    folder, splits = texts
    sections = local_sections(folder, max_tokens=123, valid_tokens=17)
    ingest(sections, Bytes(), tmp_path / "out", shard_tokens=50)
    train = plain_tokens(splits["train-0"] + splits["train-1"])
    assert tokens_of(tmp_path / "out", "train") == train[:123]
    assert tokens_of(tmp_path / "out", "valid") == plain_tokens(splits["val-0"])[:17]


def test_one_source_fills_validation_first(texts, tmp_path):
    folder, splits = texts
    parts = (Part("valid", 60), Part("train", 100))
    sections = [Section(LocalFiles([folder / "train-0.jsonl"], folder), parts)]
    ingest(sections, Bytes(), tmp_path / "out", shard_tokens=50)
    tokens = plain_tokens(splits["train-0"])
    assert tokens_of(tmp_path / "out", "valid") == tokens[:60]
    assert tokens_of(tmp_path / "out", "train") == tokens[60:160]


def test_a_single_file_and_several_without_names(texts):
    folder, splits = texts
    (alone,) = local_sections(folder / "train-0.jsonl")
    n_bytes = (folder / "train-0.jsonl").stat().st_size
    assert alone.parts == (Part("valid", n_bytes // 40), Part("train"))
    for name in splits:
        (folder / f"{name}.jsonl").rename(folder / f"{name[-3:]}.jsonl")
    valid, train = local_sections(folder)
    assert [f.name for f in valid.source.files] == ["l-0.jsonl"]
    assert [f.name for f in train.source.files] == ["n-0.jsonl", "n-1.jsonl"]


def test_too_little_text_leaves_nothing_behind(texts, tmp_path):
    folder, _ = texts
    sections = local_sections(folder / "val-0.jsonl", valid_tokens=10_000)
    out = tmp_path / "out"
    with pytest.raises(DataError, match="end before the train split begins"):
        ingest(sections, Bytes(), out)
    assert made(out) == {}


def _grown(folder, out):
    with open(folder / "val-0.jsonl", "a") as file:
        file.write('\n{"text": "more"}')
    ingest(local_sections(folder), Bytes(), out, shard_tokens=50)


def _fewer(folder, out):
    (folder / "train-1.jsonl").unlink()
    ingest(local_sections(folder), Bytes(), out, shard_tokens=50)


def _renamed(folder, out):
    (folder / "train-0.jsonl").rename(folder / "train-2.jsonl")
    ingest(local_sections(folder), Bytes(), out, shard_tokens=50)


def _other_size(folder, out):
    ingest(local_sections(folder), Bytes(), out, shard_tokens=51)


def _other_limit(folder, out):
    sections = local_sections(folder, max_tokens=1000)
    ingest(sections, Bytes(), out, shard_tokens=50)


def _other_tokenizer(folder, out):
    pytest.importorskip("tokenizers")
    own = train_bpe(["some text"], 260, folder.parent / "own.json")
    ingest(local_sections(folder), own, out, shard_tokens=50)


def _changed_shard(folder, out):
    write_shard(out / "fineweb_val_000000.bin", np.arange(50, dtype=np.uint16))
    ingest(local_sections(folder), Bytes(), out, shard_tokens=50)


def _missing_shard(folder, out):
    (out / "fineweb_val_000000.bin").unlink()
    ingest(local_sections(folder), Bytes(), out, shard_tokens=50)


def _cut_shard(folder, out):
    path = out / "fineweb_val_000000.bin"
    path.write_bytes(path.read_bytes()[:-2])
    ingest(local_sections(folder), Bytes(), out, shard_tokens=50)


def _damaged_manifest(folder, out):
    (out / "manifest.json").write_text('{"format": "allocsearch shards 1", "shar')
    ingest(local_sections(folder), Bytes(), out, shard_tokens=50)


def _foreign_manifest(folder, out):
    (out / "manifest.json").write_text('{"format": "another"}')
    ingest(local_sections(folder), Bytes(), out, shard_tokens=50)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_grown, r"sections\[0\].source.files\[0\].bytes was \d+ and is now \d+"),
        (_fewer, r"sections\[1\].source.files\[1\].name was .* is now 'absent'"),
        (_renamed, r"files\[0\].name was 'train-0.jsonl' and is now 'train-1.jsonl'"),
        (_other_size, "shard_tokens was 50 and is now 51"),
        (_other_limit, r"parts\[0\]\[1\] was None and is now 1000"),
        (_other_tokenizer, "tokenizer.vocab_size was 257 and is now 260"),
        (_changed_shard, "fineweb_val_000000.bin: has changed since it was made"),
        (_missing_shard, "fineweb_val_000000.bin: .* is missing"),
        (_cut_shard, "promises 50 tokens"),
        (_damaged_manifest, "manifest.json: damaged"),
        (_foreign_manifest, "not a manifest of shards, or of another version"),
    ],
)
def test_what_does_not_match_the_manifest_is_refused(texts, tmp_path, change, words):
    folder, _ = texts
    out = tmp_path / "out"

    def stop(progress):
        if progress.n_shards >= 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ingest(local_sections(folder), Bytes(), out, shard_tokens=50, progress=stop)
    with pytest.raises(DataError, match=words) as caught:
        change(folder, out)
    assert str(out) in str(caught.value)


def test_a_tokenizer_may_move(texts, tmp_path):
    pytest.importorskip("tokenizers")
    folder, _ = texts
    first = train_bpe(["some text"], 260, tmp_path / "own.json")
    made_first = ingest(local_sections(folder), first, tmp_path / "out")
    again = load_tokenizer(str(tmp_path / "out" / "tokenizer.json"))
    assert ingest(local_sections(folder), again, tmp_path / "out") == made_first


def test_two_writers_do_not_meet(texts, tmp_path):
    pytest.importorskip("fcntl")
    folder, _ = texts
    with (
        locked(tmp_path / "out"),
        pytest.raises(DataError, match="another process is writing shards"),
    ):
        ingest(local_sections(folder), Bytes(), tmp_path / "out")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"shard_tokens": 0}, "1 to 1000000000 tokens, received 0"),
        ({"shard_tokens": 10**12}, "received 1000000000000"),
        ({"processes": 0}, "at least 1, received 0"),
    ],
)
def test_numbers_out_of_range(texts, tmp_path, options, words):
    folder, _ = texts
    with pytest.raises(AllocsearchError, match=words):
        ingest(local_sections(folder), Bytes(), tmp_path / "out", **options)


def test_a_vocabulary_of_more_than_two_bytes_is_refused(texts, tmp_path):
    class Large(Bytes):
        pieces = (*Bytes.pieces, *[b"x"] * 2**16)

    folder, _ = texts
    with pytest.raises(AllocsearchError, match=r"65793 ids.* 65536 at most"):
        ingest(local_sections(folder), Large(), tmp_path / "out")


def test_a_broken_document_is_named_and_the_rest_is_kept(texts, tmp_path):
    folder, _ = texts
    path = folder / "train-1.jsonl"
    sound = path.read_text()
    path.write_text(sound + "\n{}")
    with pytest.raises(DataError, match=r"train-1.jsonl, line 9: no column 'text'"):
        ingest(local_sections(folder), Bytes(), tmp_path / "out", shard_tokens=50)
    assert len(read_manifest(tmp_path / "out").shards) > 5
