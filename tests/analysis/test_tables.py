"""Tables fit their width, show what the rows say and never read markup."""

import io
from dataclasses import replace

import pytest
from rich.cells import cell_len
from rich.console import Console, RenderableType

from allocsearch.allocation import Allocation
from allocsearch.analysis.detail import trial_detail
from allocsearch.analysis.fitted import Column, FittedTable
from allocsearch.analysis.rows import (
    detail_row,
    pareto_rows,
    summary_rows,
    trials_rows,
)
from allocsearch.analysis.summary import summary_table
from allocsearch.analysis.tables import pareto_table, trials_table


def text_of(renderable: RenderableType, width: int = 100) -> str:
    console = Console(width=width, file=io.StringIO(), record=True)
    console.print(renderable)
    return console.export_text()


def everything(results) -> list[RenderableType]:
    return [
        summary_table(summary_rows(results)),
        trials_table(trials_rows(results)),
        pareto_table(pareto_rows(results)),
        pareto_table(pareto_rows(results, "parameters")),
        *(trial_detail(detail_row(result, results)) for result in results[:1]),
    ]


@pytest.mark.parametrize("width", [80, 100, 160])
def test_no_line_is_wider_and_no_row_is_wrapped(search, width):
    for renderable in everything(search):
        lines = text_of(renderable, width).splitlines()
        assert max(map(cell_len, lines)) <= width
    lines = text_of(trials_table(trials_rows(search)), width).splitlines()
    rule = next(i for i, line in enumerate(lines) if line.startswith("──"))
    assert all("recurrent" in line for line in lines[rule + 1 : rule + 17])
    assert lines[rule + 17].startswith("In all rows") or "★" in lines[rule + 17]


@pytest.mark.parametrize("n", [0, 1, 2])
def test_few_trials(trial, n):
    results = [trial(float(i), number=i) for i in range(n)]
    texts = [text_of(renderable) for renderable in everything(results)]
    assert ("No trials yet." in texts[0]) == (n == 0)
    assert ("No complete trial yet" in texts[2]) == (n == 0)


def test_summary_reads_well(search):
    key = ("tiny", "conv_lstm", "recurrent")
    rows = summary_rows(search, {key: {"return": 3.9, "n_levels": 1000}})
    lines = text_of(summary_table(rows)).splitlines()
    cells = {line[:22].strip(): line[22:].split("  ") for line in lines}
    values = {name: [c.strip() for c in row if c] for name, row in cells.items()}
    assert values["depth L"] == ["8", "8"]
    assert values["return"] == ["4.100 ± 0.058", "1.700 ± 0.058"]
    assert values["untrained baseline"] == ["−1", "−1"]
    assert values["work, total"] == ["1.03 MFLOP", "1.03 MFLOP"]
    assert values["test return"] == ["3.9", "–"]
    assert values["horizon"] == ["3 k environment steps"] * 2
    assert "± standard error over 3 seeds." in "\n".join(lines)


def test_failures_show_their_reason_and_no_score(search):
    text = text_of(trials_table(trials_rows(search)))
    assert "recurrent #5 failed: [b]OOM[/b]" in text
    assert text.count("not finite") == 2
    assert text.count("running") == 2
    assert "99" not in text


def test_a_flood_of_failures_is_cut_short(trial):
    rows = trials_rows(trial((), number=i, state="failed") for i in range(30))
    assert "20 more failed." in text_of(trials_table(rows))


def test_text_of_plugins_is_never_markup(trial):
    evil = "[red]x[/red] [/] [link=http://e.x]\x1b[31m\nnew line"
    shape = Allocation("[bold]e[/]", True, 2, 2, 4, 0, "sqrt_sum", {"[o]": "[/v]"})  # type: ignore
    base = trial(allocation=shape, task=evil, budget=evil, settings={"[s]": 1.0})
    seed = replace(base.seeds[0], metrics={"return": 1.0, "[m]": 2.0})
    done = replace(base, seeds=(seed,), plugins={"[p]": "[/q]"}, unit="[u]")
    failed = replace(base, seeds=(), state="failed", reason=evil, number=1)
    results = [done, failed]
    texts = [text_of(part, 160) for part in everything(results)]
    texts.append(text_of(trial_detail(detail_row(failed, results)), 160))
    assert all("[red]x[/red] [/]" in text for text in (*texts[:3], texts[-1]))
    assert "[bold]e[/]" in texts[0]
    assert "[o]=[/v]" in texts[0]
    assert "[m]" in texts[0]
    assert "[/q]" in texts[4]
    assert not any("\x1b" in text for text in texts)


def test_columns_leave_by_priority_and_are_named():
    columns = [
        Column("needed", ["1", "2"]),
        Column("second", ["a" * 10, "b" * 10], priority=1),
        Column("first", ["a" * 10, "b" * 10], priority=2),
        Column("same", ["x", "x"], fold=True),
    ]
    table = FittedTable("Title", columns)
    wide, narrow, least = (text_of(table, width) for width in (80, 25, 12))
    assert "Left out" not in wide
    assert "In all rows: same x." in wide
    assert "Left out at this width: first" in narrow.replace("\n", "")
    assert "second" in narrow
    assert "needed" in least


def test_unmatched_trials_are_starred(trial):
    text = text_of(trials_table(trials_rows([trial(matched=False)])))
    assert "0*" in text
    assert "* not matched" in text
