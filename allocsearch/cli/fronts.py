"""Pareto fronts: table, terminal plot and figure."""

from pathlib import Path

from allocsearch.analysis.rows import pareto_rows
from allocsearch.analysis.tables import pareto_table
from allocsearch.analysis.terminal import terminal_plot
from allocsearch.cli.printing import note, plot_width, show, show_json
from allocsearch.errors import ConfigError
from allocsearch.study import Study


def print_front(study: Study, x: str, stem: Path | None, as_json: bool) -> None:
    """Print the fronts of a study against `x`; save the figure if there is a stem."""
    trials = study.trials()
    rows = pareto_rows(trials, x)
    if as_json:
        show_json(rows)
    else:
        show(pareto_table(rows))
        if rows:
            show("", terminal_plot(trials, x, width=plot_width()))
    if stem is not None and rows:
        for path in _save(study, x, stem):
            note(f"figure {path}")


def _save(study: Study, x: str, stem: Path) -> list[Path]:
    from allocsearch.analysis.figures import pareto_figure, save_figure

    try:
        stem.parent.mkdir(parents=True, exist_ok=True)
        return save_figure(pareto_figure(study.trials(), x), stem)
    except OSError as error:
        raise ConfigError(f"{stem} cannot be written: {error.strerror}") from error
