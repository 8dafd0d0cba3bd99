"""How the values of a row read in a cell; every result is plain text on one line."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from allocsearch.analysis.formats import (
    MISSING,
    format_count,
    format_number,
    listing,
    plain,
)
from allocsearch.analysis.rows import Row
from allocsearch.work import format_flops


def read_number(mapping: str, name: str) -> Callable[[Row], str]:
    """A reader of one number in a mapping of the row, such as its ``"metrics"``."""
    return lambda row: format_number(row[mapping].get(name))


def budget_cell(row: Row) -> str:
    """``"budget tiny (2.07 MFLOP per step)"``."""
    flops = flops_cell(row["budget_flops"])
    return f"budget {plain(row['budget'])} ({flops} per step)"


def seed_note(rows: Iterable[Row]) -> str:
    """What ± means in these rows; empty where no error is known."""
    seeds = sorted(
        {row["n_seeds"] for row in rows if row["standard_error"] is not None}
    )
    if not seeds:
        return ""
    return f"± standard error over {listing([str(n) for n in seeds])} seeds."


def objective_name(rows: Sequence[Row]) -> str:
    """The objective that the rows share, as words."""
    return words(rows[0]["objective"])


def horizon_cell(row: Row) -> str:
    """``"50 M environment steps"``."""
    return f"{format_count(row['horizon'])} {plain(row['unit'])}"


def flops_cell(value: int | None) -> str:
    """FLOPs in short, a dash where they were not counted."""
    return MISSING if value is None else format_flops(value)


def words(name: str) -> str:
    """``"solved fraction"`` for ``"solved_fraction"``."""
    return plain(name).replace("_", " ")


def pairs_cell(options: Mapping[str, object]) -> str:
    """``"update=replace window=64"``, a dash for none."""
    pairs = (f"{plain(name)}={plain(str(value))}" for name, value in options.items())
    return " ".join(pairs) or MISSING
