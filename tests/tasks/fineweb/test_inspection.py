"""What files hold, and making shards of them, as the command line shows it."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from allocsearch import registry
from allocsearch.cli.app import app
from allocsearch.errors import AllocsearchError, DataError
from allocsearch.tasks.fineweb import hub, inspection
from allocsearch.tasks.fineweb.corpus import load_corpora
from allocsearch.tasks.fineweb.shards import MappedShard, write_shard
from allocsearch.tasks.protocol import Task
from allocsearch.tasks.records import DataOptions


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache of the test's own."""
    monkeypatch.setenv("ALLOCSEARCH_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def texts(tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    for name in ("train", "val"):
        rows = [json.dumps({"text": f"{name} text {i}. " * 9}) for i in range(20)]
        (folder / f"{name}.jsonl").write_text("\n".join(rows))
    return folder


def prepare(path, **options):
    told = []
    options = DataOptions(**{"tokenizer": "bytes", "processes": 1} | options)
    report = inspection.prepare(path, options, told.append, told.append)
    return report, told


def test_text_is_counted(texts):
    report = inspection.inspect(texts)
    assert report.problems == ()
    n_characters = sum(len(f"train text {i}. " * 9) for i in range(20))
    assert report.parts["train"] == {
        "files": 1,
        "documents": 20,
        "characters": n_characters,
        "problems": 0,
    }
    assert report.parts["valid"]["documents"] == 20


def test_every_broken_text_file_is_named(texts):
    (texts / "train-2.jsonl").write_bytes(b"\xff")
    (texts / "train-3.jsonl").write_bytes(b"")
    (texts / "val.jsonl").write_text('{"body": 1}')
    report = inspection.inspect(texts)
    assert len(report.problems) == 3
    assert report.parts["train"]["problems"] == 2
    for name in ("train-2.jsonl", "train-3.jsonl", "val.jsonl, line 1"):
        assert any(name in problem for problem in report.problems)


def test_shards_are_counted_and_checked(tmp_path):
    for i, split in enumerate(("val", "train", "train")):
        tokens = np.arange(100 + i, dtype=np.uint16)
        write_shard(tmp_path / f"x_{split}_{i}.bin", tokens)
    report = inspection.inspect(tmp_path)
    assert report.parts["train"] == {
        "shards": 2,
        "tokens": 203,
        "largest_id": 101,
        "problems": 0,
    }
    (tmp_path / "x_train_2.bin").write_bytes(b"x" * 2000)
    report = inspection.inspect(tmp_path)
    assert report.parts["train"]["problems"] == 1
    assert "x_train_2.bin: not a shard" in report.problems[0]


def test_shards_with_a_manifest_are_read_anew(texts, tmp_path):
    out = tmp_path / "out"
    made, told = prepare(texts, out=out, shard_tokens=1000)
    assert made.parts == inspection.inspect(out).parts
    assert made.parts["valid"]["tokens"] == 20 + sum(
        len(f"val text {i}. " * 9) for i in range(20)
    )
    assert "40 documents; tokenizer bytes, 257 ids" in made.notes[0]
    assert "documents" in told[-1]
    shard = next(out.glob("*_train_*.bin"))
    content = bytearray(shard.read_bytes())
    content[-2] ^= 1
    shard.write_bytes(content)
    report = inspection.inspect(out)
    assert f"{shard}: has changed since it was made" in report.problems[0]
    assert report.parts["train"]["problems"] == 1


def test_text_made_into_the_cache_is_what_training_reads(texts, cache):
    report, _ = prepare(texts)
    (folder,) = (cache / "shards").iterdir()
    assert str(folder) in report.notes[0]
    before = folder.stat().st_mtime_ns
    load_corpora(str(texts), "bytes", n_valid=10, n_test=10)
    assert list((cache / "shards").iterdir()) == [folder]
    assert folder.stat().st_mtime_ns == before


def test_a_dataset_is_streamed(tmp_path, monkeypatch):
    pytest.importorskip("datasets")
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = pyarrow.table({"text": [f"row {i}" for i in range(50)]})
    (tmp_path / "set").mkdir()
    parquet.write_table(table, tmp_path / "set" / "train.parquet")
    monkeypatch.chdir(tmp_path)
    name = str(tmp_path / "set")
    report, told = prepare(None, dataset=name, out=tmp_path / "o", valid_tokens=70)
    assert report.parts["valid"]["tokens"] == 70
    assert told[0] == f"shards of {name}, its default config, go to {tmp_path / 'o'}"
    text = "".join(f"<|endoftext|>row {i}" for i in range(50))
    train = MappedShard(tmp_path / "o" / "set_train_000001.bin")
    expected = text.replace("<|endoftext|>", "\0").encode()
    tokens = train.read(0, train.n_tokens)
    assert [0 if t == 256 else t for t in tokens] == list(expected)[70:]
    report, _ = prepare(None, dataset=name, out=tmp_path / "p", max_tokens=200)
    counts = {split: part["tokens"] for split, part in report.parts.items()}
    assert counts == {"valid": 20, "train": 200}


def test_fineweb_is_the_default(monkeypatch, tmp_path):
    asked = []

    def sample(*args, **kwargs):
        asked.append((*args, kwargs["revision"]))
        raise InterruptedError

    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets, "load_dataset_builder", sample)
    monkeypatch.chdir(tmp_path)
    for options in ({}, {"config": "CC-MAIN-2024-10"}):
        with pytest.raises(DataError, match="cannot be opened: InterruptedError"):
            prepare(None, **options)
    assert asked == [
        (hub.FINEWEB, "sample-10BT", None),
        (hub.FINEWEB, "CC-MAIN-2024-10", None),
    ]


@pytest.mark.parametrize(
    ("path", "options", "words"),
    [
        ("texts", {"max_tokens": 0}, "max tokens must be at least 1"),
        ("texts", {"processes": 0}, "processes must be at least 1"),
        ("texts", {"max_tokens": 9}, "give --out"),
        ("texts", {"column": "body"}, "give --out"),
        ("texts", {"dataset": "x", "out": "o"}, "a path or a dataset, not both"),
        ("texts", {"tokenizer": "x"}, "unknown tokenizer 'x'"),
        ("shards", {}, "holds shards, which are made already"),
        ("nowhere", {}, "nowhere: no such file or directory"),
        ("empty", {}, "holds no text files"),
    ],
)
@pytest.mark.usefixtures("texts")
def test_what_cannot_be_made(tmp_path, path, options, words):
    for name in ("shards", "empty"):
        (tmp_path / name).mkdir()
    write_shard(tmp_path / "shards" / "a.bin", np.zeros(3, np.uint16))
    with pytest.raises(AllocsearchError, match=words):
        prepare(tmp_path / path, **options)


class Reading(Task):
    """As much of a task as the command needs."""

    name = "text-files"

    @classmethod
    def inspect_data(cls, path):
        return inspection.inspect(path)

    @classmethod
    def prepare_data(cls, path, options, *, status, note):
        return inspection.prepare(path, options, status, note)


@pytest.fixture
def call():
    registry.register("task", Reading.name, Reading)
    yield lambda *args: CliRunner().invoke(
        app, ["data", Reading.name, *map(str, args)], env={"COLUMNS": "200"}
    )
    registry.unregister("task", Reading.name)


def test_the_command_makes_and_checks(call, texts, tmp_path):
    out = tmp_path / "out"
    options = ["--tokenizer", "bytes", "--out", out, "--shard-tokens", "1k"]
    answer = call(texts, *options, "--max-tokens", "2.5k", "--processes", 1)
    assert answer.exit_code == 0, answer.stderr
    (row,) = (line for line in answer.stdout.splitlines() if line[:6] == "train ")
    assert row.split() == ["train", "3", "2", "500", "0"]
    again = call(out, "--json")
    assert json.loads(again.stdout)["parts"]["train"]["tokens"] == 2500
    assert json.loads(again.stdout)["complete"] is True
    other = call(texts, *options, "--max-tokens", "2k")
    assert other.exit_code == 2
    assert "was 2500 and is now 2000" in other.stderr


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--max-tokens", "many"), "--max-tokens 'many' is not a positive whole"),
        (("--processes", "x"), "--help"),
        (("--tokenizer", "bytes", "--out", "o"), "holds no text files"),
    ],
)
def test_bad_words_are_one_sentence(call, tmp_path, args, words):
    answer = call(tmp_path, *args)
    assert (answer.exit_code, answer.stdout) == (2, "")
    assert answer.stderr.count("\n") == 1
    assert words in answer.stderr
