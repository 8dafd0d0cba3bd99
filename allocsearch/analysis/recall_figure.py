"""Recall of probes against the step of an episode, drawn for a paper."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from allocsearch.analysis.figures import STYLE
from allocsearch.analysis.recall import RecallCurve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's, which colour-blind readers tell apart, but for yellow and black.
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_MARKERS = "osD^vP"
_DASHES = {"network": "-", "observation": (0, (4, 2.5))}


def recall_figure(curves: Sequence[RecallCurve], title: str, note: str) -> "Figure":
    """One line for each probe of a network, a dashed one for its observation.

    Args:
        curves: those of one network have one label, and so one colour.
        title: above the axes.
        note: small, below.

    Returns:
        A Matplotlib figure, for `save_recall`.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(5.2, 3.6), layout="constrained")
        axes = figure.subplots()
        labels = list(dict.fromkeys(curve.label for curve in curves))
        for curve in curves:
            _draw(axes, curve, labels.index(curve.label))
        axes.set_title(title, parse_math=False)
        axes.set_xlabel("step of the episode")
        axes.set_ylabel("recall")
        axes.set_ylim(-0.02, 1.02)
        axes.grid(axis="y")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        figure.legend(loc="outside upper center", ncols=2)
        figure.supxlabel(note, fontsize=7, color="#555555")
    return figure


def save_recall(figure: "Figure", path: Path) -> None:
    """Write a figure as its suffix says.

    Args:
        figure: of `recall_figure`.
        path: ends in .png or .svg.
    """
    import matplotlib as mpl

    with mpl.rc_context(STYLE):
        if path.suffix == ".svg":
            figure.savefig(path, metadata={"Date": None})
        else:
            figure.savefig(path, dpi=200)


def _draw(axes: "Axes", curve: RecallCurve, index: int) -> None:
    steps = range(curve.n_steps)
    color = _COLORS[index % len(_COLORS)]
    network = curve.reading == "network"
    axes.plot(
        steps,
        curve.recall[: curve.n_steps],
        ls=_DASHES[curve.reading],
        marker=_MARKERS[index % len(_MARKERS)] if network else "",
        ms=4,
        mec="white",
        mew=0.5,
        lw=1.6 if network else 1.1,
        color=color,
        label=curve.label if network else f"{curve.label}, observation",
    )
    if network:
        low, high = curve.low[: curve.n_steps], curve.high[: curve.n_steps]
        axes.fill_between(steps, low, high, color=color, alpha=0.15, lw=0)
