"""Files of curves of recall: a figure, or the numbers behind it."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from allocsearch.analysis.recall import RecallCurve
from allocsearch.analysis.records import json_ready
from allocsearch.errors import ConfigError

SUFFIXES = (".png", ".svg", ".csv", ".json")


@dataclass(frozen=True)
class Curves:
    """What is written.

    Attributes:
        curves: all of them.
        title: of the figure.
        note: below the figure.
        report: all that was found, JSON-ready.
    """

    curves: Sequence[RecallCurve]
    title: str
    note: str
    report: dict[str, Any]


def check_curve_file(path: Path) -> None:
    """Refuse a name that nothing could be written under.

    Raises:
        ConfigError: the suffix is unknown, or the folder is missing.
    """
    if path.suffix not in SUFFIXES:
        raise ConfigError(
            f"{path} has no suffix that says how to write it: end its name in "
            f"{', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"
        )
    if not path.parent.is_dir():
        raise ConfigError(f"{path}: there is no folder {path.parent}")


def write_curves(path: Path, curves: Curves) -> None:
    """Write curves as the suffix says; a file that is there is replaced.

    Args:
        path: accepted by `check_curve_file`.
        curves: what to write.

    Raises:
        ConfigError: the place cannot be written.
    """
    try:
        _WRITERS[path.suffix](path, curves)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written: {error.strerror or error}"
        ) from error


def _write_figure(path: Path, curves: Curves) -> None:
    from allocsearch.analysis.recall_figure import recall_figure, save_recall

    save_recall(recall_figure(curves.curves, curves.title, curves.note), path)


def _write_csv(path: Path, curves: Curves) -> None:
    import pandas as pd

    rows = [row for curve in curves.curves for row in curve.rows()]
    pd.DataFrame(rows).to_csv(path, index=False)


def _write_json(path: Path, curves: Curves) -> None:
    text = json.dumps(json_ready(curves.report), indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


_WRITERS: dict[str, Callable[[Path, Curves], None]] = {
    ".png": _write_figure,
    ".svg": _write_figure,
    ".csv": _write_csv,
    ".json": _write_json,
}
