"""What the figures show, computed apart from drawing so that it can be tested."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from allocsearch.analysis.best import best_by_arm
from allocsearch.analysis.candidates import (
    candidates,
    common_objective,
    grouped,
    key_of,
    primary_scores,
)
from allocsearch.analysis.formats import format_count, listing, plain
from allocsearch.analysis.pareto import Axis, find_axis, pareto_front
from allocsearch.analysis.records import baseline_means
from allocsearch.analysis.statistics import (
    Variance,
    mean,
    search_variances,
    standard_error,
    t_interval,
)
from allocsearch.results import Objective, TrialResult
from allocsearch.work import format_flops

# A baseline further away than this many times the spread of the data would flatten
# the data; it is then named in words instead of drawn.
FAR = 2.0


@dataclass(frozen=True)
class Point:
    """One trial in a figure.

    Attributes:
        number: the trial's number.
        x: its cost.
        score: mean over seeds.
        low: lower end of the score's interval; equals `score` where none is known.
        high: upper end.
    """

    number: int
    x: float
    score: float
    low: float
    high: float


@dataclass(frozen=True)
class ArmPoints:
    """The trials of one arm.

    Attributes:
        arm: "recurrent" or "nonrecurrent".
        points: every candidate, by number.
        front: the non-dominated ones, cheapest first.
    """

    arm: str
    points: tuple[Point, ...]
    front: tuple[Point, ...]


@dataclass(frozen=True)
class Curve:
    """How one trial's metric moved during training.

    Attributes:
        number: the trial's number.
        arm: "recurrent" or "nonrecurrent".
        label: depth, experts and width: "L4 E2 d12".
        best: whether the trial is the best of its arm.
        steps: training so far, in the task's unit.
        means: of the metric over seeds, one per step.
        errors: standard errors over seeds, 0 where unknown.
    """

    number: int
    arm: str
    label: str
    best: bool
    steps: tuple[float, ...]
    means: tuple[float, ...]
    errors: tuple[float, ...]


@dataclass(frozen=True)
class Frame:
    """What a panel says around its data.

    Attributes:
        title: the task, expert, budget, horizon and seeds, in two lines.
        objective: the metric on the vertical axis.
        baseline: that metric of an untrained reference, None where there is none.
        unit: of training, "environment steps" or "tokens".
    """

    title: str
    objective: Objective
    baseline: float | None
    unit: str


@dataclass(frozen=True)
class FrontPanel:
    """Score against cost for one (budget, expert)."""

    frame: Frame
    axis: Axis
    arms: tuple[ArmPoints, ...]

    @property
    def values(self) -> list[float]:
        """Everything drawn that the vertical axis must hold, baseline aside."""
        ends = [(p.score, p.score) for arm in self.arms for p in arm.points]
        ends += [(p.low, p.high) for arm in self.arms for p in arm.front]
        return [value for pair in ends for value in pair]

    @property
    def costs(self) -> list[float]:
        """The distinct costs of all points, in order."""
        return sorted({p.x for arm in self.arms for p in arm.points})


@dataclass(frozen=True)
class CurvePanel:
    """Learning curves for one (budget, expert)."""

    frame: Frame
    curves: tuple[Curve, ...]

    @property
    def values(self) -> list[float]:
        """Every mean on a curve."""
        return [value for curve in self.curves for value in curve.means]


def front_panels(results: Iterable[TrialResult], x: str = "depth") -> list[FrontPanel]:
    """One panel for each (budget, expert) with a candidate (see `candidates`).

    Args:
        results: trials in any order.
        x: a name in `pareto.AXES`; trials without a finite value of it are left out.

    Raises:
        UnknownNameError: an unknown axis.
        ConfigError: trials with different objectives.
    """
    axis = find_axis(x)
    panels = []
    for group in _by_panel(results):
        variances = search_variances(group)
        arms = []
        for key, trials in grouped(group).items():
            points = _points(trials, axis, variances[key])
            front = _points(pareto_front(trials, x), axis, variances[key])
            if points:
                arms.append(ArmPoints(key[2], points, front))
        if arms:
            panels.append(FrontPanel(_frame(group), axis, tuple(arms)))
    return panels


def curve_panels(
    results: Iterable[TrialResult], metric: str | None = None
) -> list[CurvePanel]:
    """Learning curves, averaged over the seeds, by (budget, expert).

    Points that not all seeds have, or that are not finite, are left out, and so are
    trials without any point.

    Args:
        results: trials in any order.
        metric: a metric of the curves; the primary objective by default.

    Raises:
        ConfigError: trials with different objectives.
    """
    panels = []
    for group in _by_panel(results):
        winners = {id(result) for result in best_by_arm(group).values()}
        name = metric or group[0].objective.name
        curves = [_curve(result, name, id(result) in winners) for result in group]
        if drawn := tuple(curve for curve in curves if curve.steps):
            panels.append(CurvePanel(_frame(group, metric), drawn))
    return panels


def baseline_in_view(baseline: float | None, values: Sequence[float]) -> bool:
    """Whether a baseline is near enough to the data to be drawn with them."""
    if baseline is None:
        return False
    low, high = min(values), max(values)
    reach = FAR * (high - low or abs(high) or 1.0)
    return low - reach <= baseline <= high + reach


def metric_label(objective: Objective) -> str:
    """``"loss (nats/token), lower is better"``."""
    name, unit = plain(objective.name).replace("_", " "), plain(objective.unit)
    label = name if unit in ("", name) else f"{name} ({unit})"
    return label + (", lower is better" if objective.direction == "minimize" else "")


def _by_panel(results: Iterable[TrialResult]) -> list[list[TrialResult]]:
    chosen = candidates(results)
    common_objective(chosen)
    panels: dict[tuple[str, str], list[TrialResult]] = {}
    for result in chosen:
        panels.setdefault(key_of(result)[:2], []).append(result)
    return list(panels.values())


def _points(
    results: Iterable[TrialResult], axis: Axis, variance: Variance | None
) -> tuple[Point, ...]:
    points = []
    for result in results:
        cost = axis.read(result)
        if cost is None or not math.isfinite(cost):
            continue
        score = result.score
        interval = t_interval(primary_scores(result), variance)
        low, high = (interval.low, interval.high) if interval else (score, score)
        points.append(Point(result.number, cost, score, low, high))
    return tuple(points)


def _curve(result: TrialResult, metric: str, best: bool) -> Curve:
    by_seed = [
        {point["steps"]: point[metric] for point in seed.curve if metric in point}
        for seed in result.seeds
    ]
    shared = set.intersection(*(set(points) for points in by_seed))
    at = {step: [points[step] for points in by_seed] for step in sorted(shared)}
    at = {s: v for s, v in at.items() if all(map(math.isfinite, [s, *v]))}
    shape = result.allocation
    errors = (standard_error(values) for values in at.values())
    return Curve(
        number=result.number,
        arm=result.arm,
        label=f"L{shape.depth} E{shape.n_experts} d{shape.width}",
        best=best,
        steps=tuple(at),
        means=tuple(mean(values) for values in at.values()),
        errors=tuple(0.0 if math.isnan(error) else error for error in errors),
    )


def _frame(group: Sequence[TrialResult], metric: str | None = None) -> Frame:
    first = group[0]
    objective = first.objective
    if metric is not None and metric != objective.name:
        known = {o.name: o for r in group for o in r.objectives}
        objective = known.get(metric, Objective(metric, "", "maximize"))
    means = [baseline_means(r).get(objective.name, math.nan) for r in group]
    finite = [value for value in means if math.isfinite(value)]
    return Frame(_title(group), objective, mean(finite) if finite else None, first.unit)


def _title(group: Sequence[TrialResult]) -> str:
    first = group[0]
    budget = f"budget {first.budget} ({format_flops(first.budget_flops)} per step)"
    horizons = sorted({r.horizon for r in group})
    seeds = sorted({len(r.seeds) for r in group})
    horizon = "–".join(
        format_count(h) for h in dict.fromkeys(horizons[:: len(horizons) - 1 or 1])
    )
    plural = "seed" if seeds == [1] else "seeds"
    return (
        f"{plain(first.task)} · {plain(first.allocation.expert)} · {plain(budget)}\n"
        f"{horizon} {plain(first.unit)} · {listing([str(n) for n in seeds])} {plural}"
    )
