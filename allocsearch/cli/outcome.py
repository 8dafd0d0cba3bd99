"""How a study ended: the best of each arm, on which data, and pictures."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from allocsearch.analysis.cells import words
from allocsearch.analysis.edges import edge_notes
from allocsearch.analysis.formats import plain
from allocsearch.analysis.rows import Row, summary_rows
from allocsearch.analysis.summary import summary_table
from allocsearch.analysis.terminal import terminal_plot
from allocsearch.cli import exits
from allocsearch.cli.printing import plot_width, show, show_json
from allocsearch.study import Study

_USES = {"train": "trained on", "valid": "scores are of", "test": "test scores are of"}


def report(study: Study, as_json: bool) -> int:
    """Print what a study found and save its figures.

    Returns:
        The exit code: `exits.NOTHING` where no trial is complete.
    """
    trials = study.trials()
    rows = best_rows(study)
    found = any(row["number"] is not None for row in rows)
    figures = save_figures(study) if found else []
    if as_json:
        show_json(_as_json(study, rows, figures))
        return exits.DONE if found else exits.NOTHING
    show(summary_table(rows, mode_of(study)))
    notes = edge_notes(trials, searched_values(study))
    if found:
        show(*(Text(plain(note)) for note in notes))
        show("", *data_lines(study), "", terminal_plot(trials, width=plot_width()), "")
        show(*(f"figure {path}" for path in figures))
    return exits.DONE if found else exits.NOTHING


def _as_json(study: Study, rows: list[Row], figures: list[Path]) -> dict[str, Any]:
    return {
        "study": study.name,
        "directory": str(study.directory),
        "interrupted": False,
        "mode": mode_of(study),
        "summary": rows,
        "notes": edge_notes(study.trials(), searched_values(study)),
        "data": study.manifest["data"],
        "figures": [str(path) for path in figures],
    }


def best_rows(study: Study) -> list[Row]:
    """The best of every search of the study, or that there is none."""
    rows = summary_rows(study.trials(), study.finalists(), study.config.arms)
    cells = study.manifest["cells"]
    return [r for r in rows if "/".join((r["budget"], r["expert"], r["arm"])) in cells]


def searched_values(study: Study) -> dict[str, dict[str, Any]]:
    """By budget, the values of the axes whose ends say something."""
    found = {}
    for budget, setting in study.manifest["settings"].items():
        search, space = setting["search"], setting["space"]
        fields = {k.partition(".")[2]: v for k, v in search["fields"].items()}
        shape = {"depth": space["depths"], "n_experts": space["n_experts"]}
        found[budget] = {**shape, "learning_rate": search["learning_rates"], **fields}
    return found


def mode_of(study: Study) -> str:
    """The mode that a study was begun in."""
    settings = study.manifest["settings"].values()
    return next(iter(settings))["search"]["mode"]


def data_lines(study: Study) -> list[RenderableType]:
    """Which data each kind of score is from."""
    lines: list[RenderableType] = []
    for budget, data in study.manifest["data"].items():
        several = len(study.manifest["data"]) > 1
        lines += [Text(f"Data, budget {plain(budget)}" if several else "Data", "bold")]
        table = Table.grid(padding=(0, 2))
        for split, use in _USES.items():
            if split in data:
                table.add_row(Text(use), Text(f"{split}: {_describe(data[split])}"))
        if "source" in data:
            table.add_row(Text("source"), Text(_describe(data["source"])))
        lines.append(table)
        if "test" not in data:
            lines.append(Text("There are no test data; finalists were not scored."))
    return lines


def _describe(data: Any) -> str:
    if not isinstance(data, Mapping):
        return plain(str(data))
    parts = [
        f"{words(name.removeprefix('n_'))} {plain(str(value))}"
        for name, value in data.items()
        if "sha" not in name and not _is_nested(value)
    ]
    return ", ".join(parts)


def _is_nested(value: Any) -> bool:
    """Whether a value of a manifest is too long to be read in a line."""
    return isinstance(value, list) and all(isinstance(x, Mapping) for x in value)


def save_figures(study: Study) -> list[Path]:
    """The study's figures as PNG and SVG, in its folder."""
    from allocsearch.analysis.figures import (
        learning_curves,
        pareto_figure,
        save_figure,
    )

    trials, folder = study.trials(), study.directory / "figures"
    folder.mkdir(exist_ok=True)
    return [
        *save_figure(pareto_figure(trials), folder / "score_against_depth"),
        *save_figure(learning_curves(trials), folder / "learning_curves"),
    ]
