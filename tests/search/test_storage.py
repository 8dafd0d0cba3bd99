"""A broken database is one clear sentence."""

import sqlite3

import pytest

from allocsearch.errors import AllocsearchError, ConfigError, StudyError
from allocsearch.search import Points, SearchStudy, list_studies
from allocsearch.search import storage as storage_module


def begin(url: str, points: Points) -> SearchStudy:
    return SearchStudy.open(
        url, "s", points, directions=("maximize",), sampler="random", seed=0
    )


def one_sentence(error: pytest.ExceptionInfo[AllocsearchError], path) -> str:
    text = str(error.value)
    assert str(path) in text
    assert text.endswith(".")
    assert "\n" not in text
    assert "sqlalchemy" not in text.lower()
    return text


def test_missing(folder):
    path = folder / "nowhere.db"
    with pytest.raises(StudyError) as error:
        list_studies(f"sqlite:///{path}")
    assert "no study database" in one_sentence(error, path)
    assert not path.exists()


def test_missing_folder_and_folder_for_a_file(folder, points):
    path = folder / "no" / "study.db"
    with pytest.raises(StudyError) as error:
        begin(f"sqlite:///{path}", points)
    assert "no folder" in one_sentence(error, path)
    with pytest.raises(StudyError) as error:
        begin(f"sqlite:///{folder}", points)
    assert "is a folder" in one_sentence(error, folder)


def test_not_a_database(folder, points):
    path = folder / "study.db"
    path.write_bytes(b"just some text, not a database at all" * 100)
    before = path.read_bytes()
    for call in (
        lambda: begin(f"sqlite:///{path}", points),
        lambda: list_studies(f"sqlite:///{path}"),
    ):
        with pytest.raises(StudyError) as error:
            call()
        assert "not a database" in one_sentence(error, path)
    assert path.read_bytes() == before


def test_truncated(folder, points):
    path = folder / "study.db"
    study = begin(f"sqlite:///{path}", points)
    for _ in range(3):
        study.ask()
    study.close()
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(StudyError) as error:
        SearchStudy.load(f"sqlite:///{path}", "s").records()
    assert "damaged" in one_sentence(error, path)


def test_another_programs_database(folder, points):
    path = folder / "photos.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE photos (name TEXT)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StudyError) as error:
        begin(f"sqlite:///{path}", points)
    assert "holds no studies" in one_sentence(error, path)
    assert path.read_bytes() == before


def test_empty_file(folder, points):
    path = folder / "study.db"
    path.touch()
    with pytest.raises(StudyError, match="holds no studies"):
        list_studies(f"sqlite:///{path}")
    assert begin(f"sqlite:///{path}", points).ask().number == 0


def test_locked(folder, points, monkeypatch):
    path = folder / "study.db"
    begin(f"sqlite:///{path}", points).close()
    monkeypatch.setattr(storage_module, "_LOCK_TIMEOUT_SECONDS", 0.05)
    blocker = sqlite3.connect(path, isolation_level=None)
    blocker.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StudyError) as error:
        SearchStudy.load(f"sqlite:///{path}", "s")
    blocker.close()
    assert "locked" in one_sentence(error, path)


def test_read_only(folder, points):
    path = folder / "study.db"
    begin(f"sqlite:///{path}", points).ask()
    viewer = SearchStudy.load(f"sqlite:///file:{path}?mode=ro&uri=true", "s")
    assert len(viewer.records()) == 1
    with pytest.raises(StudyError) as error:
        viewer.record(0, "key", 1)
    assert "read-only" in one_sentence(error, path)


@pytest.mark.parametrize("url", ["study.db", "", "nosuchdb://host/name", "sqlite"])
def test_not_a_url(url, points):
    with pytest.raises(ConfigError, match="not a database URL"):
        begin(url, points)


def test_passwords_are_not_shown(points):
    with pytest.raises(StudyError) as error:
        begin("postgresql://me:secret@127.0.0.1:1/name", points)
    assert "secret" not in str(error.value)
    assert "127.0.0.1" in str(error.value)
