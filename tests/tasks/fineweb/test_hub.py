"""Streaming with `datasets`: through failures of the network, and on from a state."""

import json

import pytest

from allocsearch.errors import ConfigError, DataError
from allocsearch.tasks.fineweb import encoding
from allocsearch.tasks.fineweb.documents import LocalFiles
from allocsearch.tasks.fineweb.hub import PersistentReader, StreamedDataset, of_network
from allocsearch.tasks.fineweb.ingest_state import read_manifest
from allocsearch.tasks.fineweb.ingestion import Part, Section, ingest
from allocsearch.tasks.fineweb.preparation import streamed_sections
from allocsearch.tasks.fineweb.tokenization import Bytes

datasets = pytest.importorskip("datasets")

N_FILES, N_ROWS = 3, 40
TEXTS = [f"document {i} of file {f}" for f in range(N_FILES) for i in range(N_ROWS)]


@pytest.fixture(autouse=True)
def apart(tmp_path, monkeypatch):
    """Caches of the test's own, and small batches."""
    monkeypatch.setenv("ALLOCSEARCH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(encoding, "_MOST_PIECES", 7)


@pytest.fixture
def folder(tmp_path):
    """A dataset of three Parquet files, which `datasets` streams as it would others."""
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "set"
    path.mkdir()
    for file in range(N_FILES):
        texts = TEXTS[file * N_ROWS : (file + 1) * N_ROWS]
        table = pyarrow.table({"text": texts, "id": list(range(N_ROWS))})
        name = f"train-{file:05}.parquet"
        parquet.write_table(table, path / name, row_group_size=16)
    return path


class Failing:
    """A stream of `datasets` that fails where it is told to."""

    def __init__(self, stream, faults):
        self._stream, self._faults = stream, faults

    def load_state_dict(self, state):
        self._stream.load_state_dict(state)

    def state_dict(self):
        return self._stream.state_dict()

    def __iter__(self):
        for example in self._stream:
            if self._faults and self._faults[0][0] == example["text"]:
                raise self._faults.pop(0)[1]
            yield example


def reader_of(folder, faults=(), state=None):
    waits, told, faults = [], [], list(faults)
    source = StreamedDataset(str(folder))
    reader = PersistentReader(
        lambda: Failing(source.stream(), faults),
        state,
        column="text",
        notify=told.append,
        sleep=waits.append,
    )
    return reader, waits, told


def test_every_document_once_and_in_order(folder):
    pieces = list(StreamedDataset(str(folder)).open())
    assert [piece.text for piece in pieces] == TEXTS
    assert all(piece.begins for piece in pieces)


@pytest.mark.parametrize("n_read", [0, 1, 15, 16, 17, 39, 40, 41, 119, 120])
def test_on_from_a_state(folder, n_read):
    source = StreamedDataset(str(folder))
    reader = source.open()
    for _ in range(n_read):
        next(reader)
    state = json.loads(json.dumps(reader.state()))
    assert [piece.text for piece in source.open(state)] == TEXTS[n_read:]


def test_failures_of_the_network_lose_and_repeat_nothing(folder):
    faults = [
        (TEXTS[0], ConnectionError("no route")),
        (TEXTS[5], TimeoutError()),
        (TEXTS[5], OSError("reset by peer")),
        (TEXTS[5], ConnectionResetError()),
        (TEXTS[79], ConnectionError("a last time")),
        (TEXTS[119], ConnectionError("at the very end")),
    ]
    reader, waits, told = reader_of(folder, faults)
    assert [piece.text for piece in reader] == TEXTS
    assert waits == [1, 1, 2, 4, 1, 1]
    assert told[0] == "network: ConnectionError: no route; again in 1 s"


def test_it_gives_up_in_the_end_and_can_be_continued(folder):
    faults = [(TEXTS[50], ConnectionError("down"))] * 11
    reader, waits, _ = reader_of(folder, faults)
    read = []
    with pytest.raises(DataError, match=r"failed 11 times.*down.*same command again"):
        read += reader
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60, 60]
    again, _, _ = reader_of(folder, state=reader.state())
    assert [piece.text for piece in again] == TEXTS[50:]


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (ConnectionError(), True),
        (TimeoutError(), True),
        (OSError(104, "reset"), True),
        (FileNotFoundError(), False),
        (PermissionError(), False),
        (ValueError(), False),
        (KeyError("text"), False),
    ],
)
def test_which_errors_may_pass(error, passes):
    assert of_network(error) == passes


@pytest.mark.parametrize("library", ["httpx", "httpx2"])
def test_errors_of_http_libraries_and_final_answers(library):
    httpx = pytest.importorskip(library)
    request = httpx.Request("GET", "https://example.org")
    assert of_network(httpx.ConnectTimeout("slow", request=request))
    for code, passes in ((404, False), (401, False), (429, True), (503, True)):
        response = httpx.Response(code, request=request)
        error = httpx.HTTPStatusError("said no", request=request, response=response)
        assert of_network(error) == passes


def test_errors_of_aiohttp():
    aiohttp = pytest.importorskip("aiohttp")
    assert of_network(aiohttp.ClientPayloadError())


def test_shards_are_those_of_the_files_read_directly(folder, tmp_path, monkeypatch):
    files = sorted(folder.iterdir())
    parts = (Part("valid", 500), Part("train"))
    direct = [Section(LocalFiles(files, folder), parts)]
    ingest(direct, Bytes(), tmp_path / "direct", shard_tokens=700)
    out = tmp_path / "streamed"
    faults = [(TEXTS[i], ConnectionError()) for i in (0, 33, 33, 80, 118)]
    plain = StreamedDataset.stream
    monkeypatch.setattr(
        StreamedDataset, "stream", lambda self: Failing(plain(self), faults)
    )
    n_stops = 0
    while n_stops < 8:
        source = StreamedDataset(str(folder), sleep=lambda _: None)
        sections = [Section(source, parts)]

        def stop(so_far):
            if so_far.n_new_tokens > 900:
                raise KeyboardInterrupt

        try:
            ingest(sections, Bytes(), out, shard_tokens=700, progress=stop)
            break
        except KeyboardInterrupt:
            n_stops += 1
    assert n_stops > 1
    assert faults == []
    names = [shard.name for shard in read_manifest(out).shards]
    assert len(names) > 3
    for name in names:
        assert (out / name).read_bytes() == (tmp_path / "direct" / name).read_bytes()


def test_a_changed_dataset_is_not_continued(folder, tmp_path):
    out = tmp_path / "out"

    def stop(so_far):
        if so_far.n_shards:
            raise KeyboardInterrupt

    def go_on(**options):
        sections = streamed_sections(str(folder), None, out, valid_tokens=100)
        ingest(sections, Bytes(), out, shard_tokens=100, **options)

    with pytest.raises(KeyboardInterrupt):
        go_on(progress=stop)
    (folder / "train-00002.parquet").unlink()
    with pytest.raises(DataError, match=r"n_files was 3 and is now 2"):
        go_on()


def test_what_cannot_be_streamed(folder, tmp_path, monkeypatch):
    reader = StreamedDataset(str(folder), column="body").open()
    with pytest.raises(DataError, match="the dataset: no column 'body'; there is text"):
        next(reader)
    with pytest.raises(DataError, match="must be text, received int"):
        next(StreamedDataset(str(folder), column="id").open())
    with pytest.raises(DataError, match="config 'nowhere', cannot be opened"):
        StreamedDataset(str(folder), "nowhere")
    with pytest.raises(DataError, match="cannot be opened"):
        StreamedDataset(str(tmp_path / "absent"))
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    with pytest.raises(ConfigError, match=r"allocsearch\[fineweb\]"):
        StreamedDataset(str(folder))
