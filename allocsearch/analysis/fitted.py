"""A Rich table that leaves out columns, least needed first, until it fits."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

Cell = str | Text
_GAP = 2  # one space of padding and the box's own, between columns


@dataclass(frozen=True)
class Column:
    """One column of a `FittedTable`.

    Attributes:
        header: the heading.
        cells: one per row; strings are shown as they are, never read as markup.
        justify: "left" or "right".
        priority: 0 is always shown; of the rest, the largest leaves first.
        fold: whether a column with the same value in every row may become a remark.
    """

    header: str
    cells: Sequence[Cell]
    justify: Literal["left", "right"] = "right"
    priority: int = 0
    fold: bool = False


@dataclass(frozen=True)
class FittedTable:
    """A table without wrapped cells at any width that holds its needed columns.

    Attributes:
        title: a line above.
        subtitle: a line between title and table.
        columns: all columns, of equal length.
        notes: lines below, dim where they are strings.
        breaks: rows after which a line is drawn.
    """

    title: str
    columns: Sequence[Column]
    notes: Sequence[Cell] = ()
    subtitle: str = ""
    breaks: Sequence[int] = field(default=())

    def __rich_console__(
        self,
        console: Console,
        options: ConsoleOptions,
    ) -> RenderResult:
        columns, remark = _fold(self.columns)
        columns, hidden = _fit(columns, options.max_width)
        yield Text(self.title, style="bold")
        if self.subtitle:
            yield Text(self.subtitle)
        yield self._table(columns)
        for note in (*filter(None, [remark]), *self.notes):
            yield note if isinstance(note, Text) else Text(note, style="dim")
        if hidden:
            names = ", ".join(column.header for column in hidden)
            yield Text(f"Left out at this width: {names} (--json has all).", "dim")

    def _table(self, columns: Sequence[Column]) -> Table:
        table = Table(
            box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0)
        )
        for column in columns:
            heading = Text(column.header)
            table.add_column(heading, justify=column.justify, overflow="fold")
        for i, cells in enumerate(
            zip(*(column.cells for column in columns), strict=True)
        ):
            line = [cell if isinstance(cell, Text) else Text(cell) for cell in cells]
            table.add_row(*line, end_section=i in self.breaks)
        return table


def _fold(columns: Sequence[Column]) -> tuple[list[Column], str]:
    """Columns that vary, and a remark that states the value of those that do not."""
    constant = [
        column
        for column in columns
        if column.fold
        and len(column.cells) > 1
        and len({str(cell) for cell in column.cells}) == 1
    ]
    kept = [column for column in columns if column not in constant]
    said = ", ".join(f"{column.header} {column.cells[0]}" for column in constant)
    return kept, f"In all rows: {said}." if said else ""


def _fit(
    columns: Sequence[Column], max_width: int
) -> tuple[list[Column], list[Column]]:
    """The columns that fit, and those that had to leave."""
    widths = [
        max(cell_len(str(cell)) for cell in [column.header, *column.cells]) + _GAP
        for column in columns
    ]
    kept = list(range(len(columns)))
    while sum(widths[i] for i in kept) - _GAP > max_width:
        spare = max(kept, key=lambda i: columns[i].priority)
        if columns[spare].priority == 0:
            break
        kept.remove(spare)
    hidden = [column for i, column in enumerate(columns) if i not in kept]
    return [columns[i] for i in kept], hidden
