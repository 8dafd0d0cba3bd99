"""A table of results searched from the command line."""

import pytest

from allocsearch import registry
from allocsearch.tasks.tabular import Tabular


@pytest.fixture(autouse=True)
def _tabular():
    known = "tabular" in registry.names("task")
    if not known:
        registry.register("task", "tabular", Tabular)
    yield
    if not known:
        registry.unregister("task", "tabular")


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = ["depth,n_experts,width,flops,score,loss"]
    rows += [
        f"{d},{n},{32 // d},{50 * n},{d / n},{n / d}" for d in (1, 2, 4) for n in (1, 2)
    ]
    (tmp_path / "t.csv").write_text("\n".join(rows) + "\n")
    return ["--task", "tabular", "--data", "t.csv"]


def test_run_finds_the_best_row_and_stops_when_the_table_is_used_up(cli, table):
    answer = cli("run", *table, "--n-trials", 50, "--quiet")
    assert answer.code == 0
    assert "all 6 feasible points have been tried" in answer.err
    shown = cli("trials", "tabular-tiny", "--json").json
    assert len(shown) == 6
    best = max(shown, key=lambda row: row["score"])
    assert (best["depth"], best["n_experts"]) == (4, 1)


def test_space_lists_the_rows_within_the_budget(cli, table):
    rows = cli("space", *table, "--budget", "50", "--json").json
    assert {row["depth"] for row in rows} == {1, 2, 4}
    assert {row["n_experts"] for row in rows} == {1}
    assert all(row["core_flops"] == 50 for row in rows)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("run", "--set", "task.objectives=speed"), "no metric 'speed'"),
        (("run", "--budget", "20"), "0 of 6 table recurrent allocations fit"),
        (("run", "--set", "search.sampler=nsga"), "did you mean 'nsga2'"),
        (("train", "-L", "4"), "trains nothing"),
        (("run", "--data", "absent.csv"), "there is no table absent.csv"),
    ],
)
def test_what_cannot_be_used_is_said_in_a_sentence(cli, table, args, words):
    command, *rest = args
    answer = cli(command, *table, *rest)
    assert answer.code == 2
    assert words in answer.err
    assert "Traceback" not in answer.err


def test_the_config_that_is_shown_can_be_run(cli, table, tmp_path):
    shown = cli("show-config", *table)
    assert "budgets: [table]" in shown.out
    (tmp_path / "s.yaml").write_text(shown.out)
    assert len(cli("space", "s.yaml", "--json").json) == 6


def test_data_checks_a_table(cli, table):
    answer = cli("data", "tabular", table[-1], "--json")
    assert answer.code == 0
    assert answer.json["parts"]["t.csv"]["allocations"] == 6
