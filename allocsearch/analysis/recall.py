"""What probes found of what there was to find, step by step, on items in common."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from allocsearch.analysis.bootstrap import bootstrap_ratios

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class RecallCurve:
    """Recall and precision of one probe against the step of an episode.

    Recall is the share of places with a class to emit where the right one was emitted;
    precision the share of right ones among those emitted. Places of all items and
    squares are pooled. What has no places is NaN.

    Attributes:
        label: names the network.
        reading: what the probe reads, "network" or "observation".
        recall: one number per step, from step 0.
        low, high: ends of a 95 % bootstrap interval of the recall, over items.
        precision: one number per step.
        n_items: items whose episodes reach the step.
        n_targets: places with a class to emit.
        recall_overall, precision_overall: over all these steps.
        macro_f1: mean over classes of their F1, without a threshold.
    """

    label: str
    reading: str
    recall: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    precision: tuple[float, ...]
    n_items: tuple[int, ...]
    n_targets: tuple[int, ...]
    recall_overall: float
    precision_overall: float
    macro_f1: float

    @property
    def n_steps(self) -> int:
        """Steps up to the last that has something to find."""
        found = [t for t, n in enumerate(self.n_targets) if n]
        return found[-1] + 1 if found else 0

    def rows(self) -> list[dict[str, Any]]:
        """One JSON-ready mapping a step, for a table of curves."""
        return [
            {
                "label": self.label,
                "reading": self.reading,
                "step": t,
                "recall": self.recall[t],
                "recall_low": self.low[t],
                "recall_high": self.high[t],
                "precision": self.precision[t],
                "n_items": self.n_items[t],
                "n_targets": self.n_targets[t],
            }
            for t in range(self.n_steps)
        ]


def recall_curve(
    label: str, reading: str, counts: "Mapping[str, np.ndarray]", lengths: "np.ndarray"
) -> RecallCurve:
    """The curve of one probe over some items.

    Args:
        label: names the network.
        reading: what the probe reads.
        counts: "targets", "emitted" and "right", each `[items, steps]`, and
            "confusion", `[items, classes, classes]` with true classes in rows.
        lengths: `[items]`, steps of the items' episodes.
    """
    import numpy as np

    targets, emitted, right = (counts[n] for n in ("targets", "emitted", "right"))
    ends = bootstrap_ratios(right, targets)
    steps = np.arange(targets.shape[1])
    return RecallCurve(
        label=label,
        reading=reading,
        recall=tuple(ratios(right.sum(axis=0), targets.sum(axis=0)).tolist()),
        low=tuple(ends[:, 0].tolist()),
        high=tuple(ends[:, 1].tolist()),
        precision=tuple(ratios(right.sum(axis=0), emitted.sum(axis=0)).tolist()),
        n_items=tuple((lengths[:, None] > steps).sum(axis=0).tolist()),
        n_targets=tuple(targets.sum(axis=0).tolist()),
        recall_overall=float(ratios(right.sum(), targets.sum())),
        precision_overall=float(ratios(right.sum(), emitted.sum())),
        macro_f1=macro_f1(counts["confusion"].sum(axis=0)),
    )


def macro_f1(confusion: "np.ndarray") -> float:
    """The mean of F1 over the classes that are truly there; NaN without any.

    Args:
        confusion: `[classes, classes]`, counts with true classes in rows.
    """
    import numpy as np

    true, told = confusion.sum(axis=1), confusion.sum(axis=0)
    each = ratios(2 * np.diagonal(confusion), true + told)
    return float(each[true > 0].mean()) if np.any(true) else float("nan")


def ratios(numerators: "np.ndarray", denominators: "np.ndarray") -> "np.ndarray":
    """Elementwise; NaN over zero."""
    import numpy as np

    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(denominators == 0, np.nan, numerators / denominators)
