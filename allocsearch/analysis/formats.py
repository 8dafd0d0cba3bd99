"""Numbers as a reader of tables and figures wants them."""

import math
import unicodedata
from collections.abc import Iterable

from allocsearch.allocation import ARMS

MISSING = "–"
ARM_LABELS = {"recurrent": "recurrent", "nonrecurrent": "non-recurrent"}
_UNPRINTED = ("Cc", "Cf", "Cs")
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB")


def arm_label(arm: str) -> str:
    """``"non-recurrent"`` for ``"nonrecurrent"``; other names unchanged."""
    return ARM_LABELS.get(arm, arm)


def arm_order(arm: str) -> int:
    """The recurrent arm first."""
    return ARMS.index(arm)


def format_number(value: float | None) -> str:
    """Four significant digits; a dash for what is unknown or not finite."""
    if value is None or not math.isfinite(value):
        return MISSING
    return f"{value:.4g}".replace("-", "−")


def format_score(
    value: float | None, error: float | None = None, decimals: int | None = None
) -> str:
    """A score and its error, by default to two significant digits of the error.

    >>> format_score(8.3149, 0.1234)
    '8.31 ± 0.12'
    """
    if value is None or not math.isfinite(value):
        return MISSING
    if decimals is None:
        decimals = score_decimals([error])
    if decimals is None or not 1e-4 <= abs(value) < 1e6:
        text = format_number(value)
    else:
        text = f"{value:.{decimals}f}".replace("-", "−")
    if error is None or not math.isfinite(error):
        return text
    fine = decimals is None or 0 < error < 0.1 * 10**-decimals
    return f"{text} ± {error:.1g}" if fine else f"{text} ± {error:.{decimals}f}"


def score_decimals(errors: Iterable[float | None]) -> int | None:
    """Decimals that show two digits of the median error, at most six; None if unknown.

    A column of scores reads best with one number of decimals.
    """
    known = sorted(e for e in errors if e and math.isfinite(e))
    if not known:
        return None
    digits = 1 - math.floor(math.log10(known[len(known) // 2]))
    return min(max(0, digits), 6)


def format_count(value: float | None) -> str:
    """A count with three significant digits: ``"12.3 k"``, ``"50 M"``."""
    if value is None or not math.isfinite(value):
        return MISSING
    for suffix, scale in ((" T", 1e12), (" G", 1e9), (" M", 1e6), (" k", 1e3)):
        if abs(value) >= scale:
            return f"{value / scale:.3g}{suffix}"
    return f"{value:.3g}"


def format_bytes(value: float | None) -> str:
    """Bytes in binary units: ``"2.34 KiB"``."""
    if value is None or not math.isfinite(value):
        return MISSING
    power = min(int(math.log(max(value, 1), 1024)), len(_BINARY) - 1)
    return f"{value / 1024**power:.4g} {_BINARY[power]}"


def format_seconds(value: float | None) -> str:
    """A duration in the two largest units: ``"12.5 s"``, ``"3 min 20 s"``."""
    if value is None or not math.isfinite(value):
        return MISSING
    if value < 60:
        return f"{value:.3g} s"
    units = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
    seconds = round(value)
    i = next(i for i, (_, size) in enumerate(units) if seconds >= size)
    (big, size), (small, part) = units[i], units[i + 1]
    return f"{seconds // size} {big} {seconds % size // part} {small}"


def plain(text: str) -> str:
    """Text of a user or a plug-in on one line, without control characters."""
    return printable(" ".join(str(text).split()))


def printable(text: str) -> str:
    """Text without what a terminal acts upon, but for new lines.

    Nor has it half of a surrogate pair, which is how Python shows a file name that is
    not UTF-8 and which no terminal takes.
    """
    return "".join(
        c for c in text if c == "\n" or unicodedata.category(c) not in _UNPRINTED
    )


def listing(words: list[str]) -> str:
    """``"a, b and c"``."""
    head, tail = words[:-1], words[-1:]
    return " and ".join(filter(None, [", ".join(head), *tail]))
