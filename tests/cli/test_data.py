"""`allocsearch data`: what files hold, and that broken ones are named."""

import pytest

GOOD = "#####\n#@$.#\n#####\n\n######\n#@ $.#\n######\n"
BAD = "#####\n#@$x#\n#####\n\n####\n#@ #\n####\n"


@pytest.fixture
def levels(tmp_path, monkeypatch):
    """A directory with three sound splits."""
    monkeypatch.setenv("ALLOCSEARCH_CACHE_DIR", str(tmp_path / "cache"))
    for split in ("train", "valid", "test"):
        (tmp_path / "set" / split).mkdir(parents=True)
        (tmp_path / "set" / split / "0.txt").write_text(GOOD)
    (tmp_path / "set" / "train" / "1.txt").write_text(GOOD)
    return tmp_path / "set"


def test_a_row_for_every_split(cli, levels):
    answer = cli("data", "sokoban", levels, env={"COLUMNS": "200"})
    assert answer.code == 0, answer.err
    (row,) = (line for line in answer.out.splitlines() if line.startswith("train "))
    assert row.split() == ["train", "2", "4", "3x5,", "3x6", "1", "0"]
    assert "train: 2 of 4 levels repeat an earlier one (2 identical" in answer.out
    assert "valid: 2 of 2 levels are also in train" in answer.out
    assert "Packed for fast loading" in answer.out


def test_json_alone_on_stdout(cli, levels):
    report = cli("data", "sokoban", levels, "--json").json
    assert report["parts"]["train"]["levels"] == 4
    assert report["parts"]["valid"]["boards"] == ["3x5", "3x6"]
    assert report["problems"] == []
    assert report["duplicates"][0]["identical"] == 2
    assert set(report["packs"]) == {"train", "valid", "test"}


def test_problems_are_listed_and_the_exit_code_is_2(cli, levels):
    (levels / "valid" / "1.sok").write_text(BAD)
    answer = cli("data", "sokoban", levels)
    assert answer.code == 2
    assert f"{levels / 'valid/1.sok'}, line 2: a level may hold only" in answer.out
    assert f"{levels / 'valid/1.sok'}, line 5: a level must not be" in answer.out
    assert answer.err == f"allocsearch: {levels}: 2 problems, listed above\n"
    answer = cli("data", "sokoban", levels, "--json")
    assert (answer.code, len(answer.json["problems"])) == (2, 2)


def test_saved_solutions_are_played(cli, levels):
    (levels / "valid" / "1.sok").write_text(f"{GOOD}\nSolution\nrR\nuu\n")
    answer = cli("data", "sokoban", levels / "valid")
    assert (answer.code, answer.out.count("solution must")) == (0, 0)
    (levels / "valid" / "1.sok").write_text(f"{GOOD}\nSolution\nru\n")
    answer = cli("data", "sokoban", levels / "valid")
    assert answer.code == 2
    assert "1.sok, line 10: a saved solution must solve its level" in answer.out


def test_many_problems_are_cut_short_but_not_in_json(cli, levels):
    (levels / "valid" / "1.sok").write_text("\n".join([BAD] * 30))
    answer = cli("data", "sokoban", levels)
    assert answer.out.count("1.sok, line") == 20
    assert "and 40 more" in answer.out
    assert len(cli("data", "sokoban", levels, "--json").json["problems"]) == 60


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("sokobam", "."), "did you mean 'sokoban'?"),
        (("sokoban", "nowhere"), "nowhere: no such file or directory"),
        (("sokoban", "."), "holds no level files"),
        (("statetrack", "."), "reads no files"),
        (("sokoban",), "allocsearch data --help"),
        (("sokoban", ".", "--out", "x"), "makes no files"),
    ],
)
def test_what_cannot_be_inspected(cli, tmp_path, monkeypatch, args, words):
    monkeypatch.chdir(tmp_path)
    answer = cli("data", *args)
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert words in answer.err
