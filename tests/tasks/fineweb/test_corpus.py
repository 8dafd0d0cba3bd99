"""Corpora from the built-in text, shards and text files."""

import json
import subprocess
import sys

import numpy as np
import pytest

from allocsearch.errors import AllocsearchError, ConfigError, DataError
from allocsearch.tasks.fineweb.builtin_text import stories
from allocsearch.tasks.fineweb.corpus import load_corpora
from allocsearch.tasks.fineweb.ingestion import ingest
from allocsearch.tasks.fineweb.preparation import local_sections
from allocsearch.tasks.fineweb.shards import write_shard
from allocsearch.tasks.fineweb.slots import SlotStream
from allocsearch.tasks.fineweb.tokenization import Bytes, load_tokenizer, train_bpe


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache of the test's own."""
    monkeypatch.setenv("ALLOCSEARCH_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def gpt2():
    try:
        return load_tokenizer("gpt2")
    except ConfigError as error:
        pytest.skip(str(error))


def whole(corpus):
    parts = [corpus.read(i, 0, s.n_tokens) for i, s in enumerate(corpus.shards)]
    return np.concatenate(parts)


def test_the_built_in_text_says_that_it_is_one():
    corpora = load_corpora(None, None, n_valid=1000, n_test=2000)
    assert {k: c.n_tokens for k, c in corpora.items() if k != "train"} == {
        "valid": 1000,
        "test": 2000,
    }
    assert 200_000 < corpora["train"].n_tokens < 300_000
    for corpus in corpora.values():
        assert "built-in" in corpus.source
        described = corpus.describe()
        assert json.loads(json.dumps(described)) == described
        assert described["tokenizer"]["name"] == "bytes"
    text = corpora["train"].tokenizer.decode(whole(corpora["train"]))
    assert text.split("<|endoftext|>")[1:] == stories("train")
    assert not set(stories("train")) & set(stories("valid"))
    again = load_corpora(None, "bytes", n_valid=1000, n_test=2000)
    assert {k: c.describe() for k, c in again.items()} == {
        k: c.describe() for k, c in corpora.items()
    }


def test_built_in_text_and_shards_need_no_package_beside_numpy(tmp_path):
    for i, split in enumerate(("val", "train")):
        tokens = np.arange(1000 * (1 + i)) % 256
        write_shard(tmp_path / f"x_{split}_{i:06}.bin", tokens.astype(np.uint16))
    code = """
import sys
for name in ("datasets", "tokenizers", "tiktoken", "pyarrow", "jax"):
    sys.modules[name] = None
from allocsearch.tasks.fineweb.corpus import load_corpora
for data in (None, sys.argv[1]):
    corpora = load_corpora(data, "bytes", n_valid=100, n_test=100)
    print(corpora["train"].n_tokens)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split()[1] == "2000"


def test_shards_of_others(tmp_path, gpt2):
    tokens = np.random.default_rng(0).integers(0, 50257, (4, 300)).astype(np.uint16)
    names = ("val_000000", "train_000001", "train_000002", "train_000010")
    for name, row in zip(names, tokens, strict=True):
        write_shard(tmp_path / f"fineweb_{name}.bin", row)
    corpora = load_corpora(str(tmp_path), None, n_valid=100, n_test=150)
    assert corpora["train"].tokenizer.digest() == gpt2.digest()
    np.testing.assert_array_equal(whole(corpora["train"]), tokens[1:].ravel())
    np.testing.assert_array_equal(whole(corpora["valid"]), tokens[0, :100])
    np.testing.assert_array_equal(whole(corpora["test"]), tokens[0, 100:250])
    listed = [shard["name"] for shard in corpora["train"].describe()["shards"]]
    assert listed == [f"fineweb_{name}.bin" for name in names[1:]]


def test_without_names_the_first_shard_validates(tmp_path):
    for i in range(3):
        write_shard(tmp_path / f"{i}.bin", np.full(50, i, np.uint16))
    corpora = load_corpora(str(tmp_path), "bytes", n_valid=20, n_test=30)
    assert set(whole(corpora["valid"])) == set(whole(corpora["test"])) == {0}
    assert whole(corpora["train"]).tolist() == [1] * 50 + [2] * 50


def test_valid_and_test_are_disjoint_prefixes_over_several_shards(tmp_path):
    for i in range(3):
        tokens = np.arange(40 * i, 40 * i + 40, dtype=np.uint16)
        write_shard(tmp_path / f"val_{i}.bin", tokens)
    write_shard(tmp_path / "train.bin", np.zeros(40, np.uint16))
    for n_valid, n_test in ((10, 20), (40, 40), (30, 65), (50, 70), (0, 120)):
        corpora = load_corpora(str(tmp_path), "bytes", n_valid=n_valid, n_test=n_test)
        test = whole(corpora["test"]).tolist()
        assert test == list(range(n_valid, n_valid + n_test))
        if n_valid:
            assert whole(corpora["valid"]).tolist() == list(range(n_valid))
        parts = [s["tokens"] for s in corpora["test"].describe()["shards"]]
        assert sum(end - start for start, end in parts) == n_test
    with pytest.raises(DataError, match="120 tokens, fewer than the 121 that"):
        load_corpora(str(tmp_path), "bytes", n_valid=50, n_test=71)


def test_reading_past_the_end_is_an_error():
    corpus = load_corpora(None, None, n_valid=100, n_test=100)["valid"]
    assert corpus.read(0, 90, 10).shape == (10,)
    with pytest.raises(DataError, match="has 100 tokens, so tokens 90 to 101 cannot"):
        corpus.read(0, 90, 11)


@pytest.fixture
def texts(tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    for name in ("train", "val"):
        rows = [json.dumps({"text": f"{name} text {i}. " * 9}) for i in range(20)]
        (folder / f"{name}.jsonl").write_text("\n".join(rows))
    return folder


def shard_folders(cache):
    return sorted((cache / "shards").iterdir())


def test_text_is_tokenised_once(texts, cache):
    first = load_corpora(str(texts), "bytes", n_valid=100, n_test=100)
    (folder,) = shard_folders(cache)
    times = {p.name: p.stat().st_mtime_ns for p in folder.glob("*.bin")}
    again = load_corpora(str(texts), "bytes", n_valid=100, n_test=100)
    assert {p.name: p.stat().st_mtime_ns for p in folder.glob("*.bin")} == times
    for split in first:
        assert first[split].describe() == again[split].describe()
    assert str(cache) not in json.dumps(first["train"].describe())
    made_from = first["train"].describe()["made_from"]
    assert made_from[1]["files"][0]["name"] == "train.jsonl"
    tokens = whole(first["train"])
    texts_back = Bytes().decode(tokens).split("<|endoftext|>")[1:]
    assert texts_back == [f"train text {i}. " * 9 for i in range(20)]


def test_changed_text_and_other_tokenizers_have_shards_of_their_own(texts, cache):
    pytest.importorskip("tokenizers")
    load_corpora(str(texts), "bytes", n_valid=10, n_test=10)
    with open(texts / "train.jsonl", "a") as file:
        file.write('\n{"text": "one more"}')
    corpora = load_corpora(str(texts), "bytes", n_valid=10, n_test=10)
    assert len(shard_folders(cache)) == 2
    assert whole(corpora["train"])[-8:].tolist() == list(b"one more")
    own = train_bpe(["some text "], 260, cache / "own.json")
    corpora = load_corpora(str(texts), own.name, n_valid=10, n_test=10)
    assert len(shard_folders(cache)) == 3
    assert corpora["train"].tokenizer.digest() == own.digest()


@pytest.fixture
def made(texts, tmp_path):
    """A folder of shards with a manifest, of bytes."""
    ingest(local_sections(texts), Bytes(), tmp_path / "made", shard_tokens=1000)
    return tmp_path / "made"


def test_shards_with_a_manifest_know_their_tokenizer(made, texts):
    corpora = load_corpora(str(made), None, n_valid=100, n_test=100)
    assert corpora["train"].tokenizer.name == "bytes"
    direct = load_corpora(str(texts), "bytes", n_valid=100, n_test=100)
    for split in corpora:
        np.testing.assert_array_equal(whole(corpora[split]), whole(direct[split]))
    stream = SlotStream(corpora["train"], 4, 16)
    assert stream.windows(0, 3).reset[0].any()


def test_a_trained_tokenizer_is_kept_with_its_shards(texts, tmp_path):
    pytest.importorskip("tokenizers")
    own = train_bpe(["some text "], 260, tmp_path / "own.json")
    ingest(local_sections(texts), own, tmp_path / "made")
    (tmp_path / "own.json").unlink()
    corpora = load_corpora(str(tmp_path / "made"), None, n_valid=9, n_test=9)
    assert corpora["train"].tokenizer.digest() == own.digest()


def _other_tokenizer(made):
    pytest.importorskip("tokenizers")
    return train_bpe(["some text"], 260, made.parent / "own.json").name


def _changed(made):
    write_shard(made / "fineweb_train_000004.bin", np.zeros(1000, np.uint16))


def _incomplete(made):
    text = (made / "manifest.json").read_text()
    (made / "manifest.json").write_text(text.replace('e": true', 'e": false'))


def _large_id(made):
    for name in ("manifest.json", "tokenizer.json"):
        (made / name).unlink(missing_ok=True)
    write_shard(made / "fineweb_train_000004.bin", np.array([1, 257], np.uint16))


def _one_shard(made):
    for path in made.iterdir():
        if "000001" not in path.name:
            path.unlink()


def _empty(made):
    for path in made.iterdir():
        path.unlink()


def _gone(made):
    made.rename(made.parent / "elsewhere")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_other_tokenizer, "made with the tokenizer bytes, not with .*own.json"),
        (_changed, "fineweb_train_000004.bin: (has changed|the manifest)"),
        (_incomplete, "was interrupted after .* repeat the `allocsearch data`"),
        (_large_id, "000004.bin: token id 257 is outside the vocabulary of bytes"),
        (_one_shard, "one shard, and nothing to validate on"),
        (_empty, "holds no shards .* and no text"),
        (_gone, "made: no such file or directory"),
    ],
)
def test_shards_that_cannot_be_used(made, change, words):
    tokenizer = change(made) or "bytes"
    with pytest.raises(AllocsearchError, match=words):
        load_corpora(str(made), tokenizer, n_valid=10, n_test=10)


@pytest.mark.real_data
def test_real_text_becomes_gpt2_tokens_once(real_data, gpt2, cache):
    pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = real_data / "text"
    if not path.exists():
        pytest.skip(f"no text at {path}")
    corpora = load_corpora(str(path), "gpt2", n_valid=50_000, n_test=100_000)
    rows = parquet.read_table(path / "val-00000.parquet").to_pylist()
    n_valid = sum(1 + row["token_count"] for row in rows)
    assert corpora["valid"].describe()["shards"][0]["n_tokens"] == n_valid
    first = whole(corpora["valid"])[: 1 + rows[0]["token_count"]]
    assert gpt2.decode(first) == "<|endoftext|>" + rows[0]["text"]
    n_train = 0
    for file in sorted(path.glob("train-*.parquet")):
        counts = parquet.read_table(file, columns=["token_count"])[0].to_pylist()
        n_train += sum(counts) + len(counts)
    assert corpora["train"].n_tokens == n_train
    assert len(shard_folders(cache)) == 1
    stream = SlotStream(corpora["train"], 8, 256)
    assert stream.n_windows == (n_train - 1) // 8 // 256
