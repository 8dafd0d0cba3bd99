"""Documents of local files: all of them, in order, from any place on."""

import json

import pytest

from allocsearch.errors import DataError
from allocsearch.tasks.fineweb import documents
from allocsearch.tasks.fineweb.documents import LocalFiles, Piece, read_pieces
from allocsearch.tasks.fineweb.files import divided, split_of, text_files

TEXTS = [f"document {i}\nof some lines" for i in range(7)]


def write_parquet(path, texts, column="text", rows=3):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = pyarrow.table({"id": list(range(len(texts))), column: texts})
    parquet.write_table(table, path, row_group_size=rows)
    return path


def write_json_lines(path, texts, column="text"):
    lines = [json.dumps({column: text, "id": i}) for i, text in enumerate(texts)]
    path.write_text("\n\n".join(lines))
    return path


def write_text(path, texts):
    path.write_text("\n<|endoftext|>\n".join(texts))
    return path


WRITERS = {"parquet": write_parquet, "jsonl": write_json_lines, "txt": write_text}


@pytest.mark.parametrize("ending", WRITERS)
def test_all_documents_from_any_place_on(tmp_path, ending):
    path = WRITERS[ending](tmp_path / f"a.{ending}", TEXTS)
    pieces = list(read_pieces(path, "text"))
    assert [piece.text.rstrip("\n") for piece in pieces] == TEXTS
    assert all(piece.begins for piece in pieces)
    for skip in range(9):
        assert list(read_pieces(path, "text", skip)) == pieces[skip:]


def test_a_reader_goes_on_where_its_state_says(tmp_path):
    files = [
        write_text(tmp_path / "a.txt", TEXTS[:2]),
        write_parquet(tmp_path / "b.parquet", TEXTS[2:5]),
        write_json_lines(tmp_path / "c.jsonl", TEXTS[5:]),
    ]
    source = LocalFiles(files, tmp_path)
    whole = list(source.open())
    assert len(whole) == 7
    reader, states = source.open(), []
    for _ in range(8):
        states.append(json.loads(json.dumps(reader.state())))
        next(reader, None)
    for n_read, state in enumerate(states):
        assert list(source.open(state)) == whole[n_read:]


def test_long_texts_come_in_pieces_of_whole_lines(tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "_LONGEST_PIECE", 20)
    text = "one line\nanother line\nthird\n" * 3
    (tmp_path / "a.txt").write_text(text + "<|endoftext|>\nlast")
    pieces = list(read_pieces(tmp_path / "a.txt", "text"))
    assert [piece.begins for piece in pieces] == [True, *[False] * 3, True]
    assert "".join(piece.text for piece in pieces[:-1]) == text
    assert all(piece.text.endswith("\n") for piece in pieces[:-1])
    assert pieces[-1] == Piece("last")


def test_a_byte_order_mark_and_windows_lines(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo")
    assert list(read_pieces(tmp_path / "a.txt", "text")) == [Piece("one\ntwo")]


def _parquet_of(texts, column="text"):
    return lambda path: write_parquet(path, texts, column)


def _bytes_of(content):
    return lambda path: path.write_bytes(content)


@pytest.mark.parametrize(
    ("name", "write", "words"),
    [
        ("a.txt", _bytes_of(b""), "an empty file"),
        ("a.txt", _bytes_of(b"one\ntwo\xff\n"), "not UTF-8"),
        ("a.txt", _bytes_of(b"<|endoftext|>\n"), "has no text"),
        ("a.jsonl", _bytes_of(b""), "an empty file"),
        ("a.jsonl", _bytes_of(b"\n\n"), "has no lines"),
        ("a.jsonl", _bytes_of(b'{"text": "a"}\n{"text": '), "line 2: no JSON"),
        ("a.jsonl", _bytes_of(b"[1]"), "line 1: a line must be an object"),
        (
            "a.jsonl",
            _bytes_of(b'{"body": "a", "id": 1}'),
            "line 1: no column 'text'; there is body, id",
        ),
        ("a.jsonl", _bytes_of(b'{"text": null}'), "must be text, received nothing"),
        ("a.jsonl", _bytes_of(b'{"text": 3}'), "must be text, received int"),
        ("a.jsonl", _bytes_of(b'{"text": "\xff"}'), "not UTF-8"),
        ("a.parquet", _bytes_of(b""), "an empty file"),
        ("a.parquet", _bytes_of(b"PAR1 and no more"), "no sound Parquet file"),
        ("a.parquet", _parquet_of(["a"], "body"), "no column 'text'; there is id, bod"),
        ("a.parquet", _parquet_of(["a", None]), "row 2: 'text' must be text, received"),
        ("a.parquet", _parquet_of([1, 2]), "row 1: 'text' must be text, received int"),
    ],
)
def test_what_is_no_text(tmp_path, name, write, words):
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    write(tmp_path / name)
    with pytest.raises(DataError, match=words) as caught:
        list(read_pieces(tmp_path / name, "text"))
    assert str(tmp_path / name) in str(caught.value)


def test_parquet_strings_that_are_not_utf8(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    spoilt = pyarrow.array([b"fine", b"\xff\xfe"]).view(pyarrow.string())
    parquet.write_table(pyarrow.table({"text": spoilt}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match="row 2: not UTF-8"):
        list(read_pieces(tmp_path / "a.parquet", "text"))


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("fineweb_train_000001.bin", "train"),
        ("fineweb_val_000000.bin", "valid"),
        ("val-00000.parquet", "valid"),
        ("validation.jsonl", "valid"),
        ("train/00000.parquet", "train"),
        ("val/train-of-thought.txt", "train"),
        ("test/0.txt", "test"),
        ("trainer_valley.txt", None),
        ("0.parquet", None),
    ],
)
def test_the_split_that_a_name_tells(tmp_path, name, split):
    assert split_of(tmp_path / name, tmp_path) == split


def test_what_validates(tmp_path):
    def divided_names(*names):
        files = [tmp_path / f"{name}.txt" for name in names]
        return {k: [f.stem for f in v] for k, v in divided(files, tmp_path).items()}

    assert divided_names("more", "test", "train", "valid") == {
        "train": ["more", "train"],
        "valid": ["valid"],
    }
    assert divided_names("a", "b", "test") == {"train": ["b"], "valid": ["a"]}
    assert divided_names("train-0", "train-1") == {
        "train": ["train-1"],
        "valid": ["train-0"],
    }
    assert divided_names("a", "test") == {"train": ["a"]}
    assert divided_names("valid") == {"train": ["valid"]}
    for names in (("val-0", "val-1"), ("test-0", "test-1"), ("test", "val")):
        with pytest.raises(DataError, match="no file to train on"):
            divided_names(*names)


def test_notes_beside_a_dataset_are_not_read_as_text(tmp_path):
    write_json_lines(tmp_path / "a.jsonl", TEXTS)
    assert text_files(tmp_path) == [tmp_path / "a.jsonl"]
    (tmp_path / "README.md").write_text("notes")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "b.txt").write_text("hidden")
    assert text_files(tmp_path) == [tmp_path / "a.jsonl"]
    (tmp_path / "licence.txt").write_text("notes")
    with pytest.raises(DataError, match=r"several kinds, such as .*licence.txt"):
        text_files(tmp_path)
