"""What tables show, as JSON-ready rows: `tables` draws and ``--json`` prints them.

In every row a value that is unknown or not finite is None.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from allocsearch.allocation import ARMS
from allocsearch.analysis.best import best_by_arm
from allocsearch.analysis.candidates import Key, grouped, has_score, key_of
from allocsearch.analysis.formats import arm_label, format_score, listing
from allocsearch.analysis.pareto import find_axis, pareto_fronts
from allocsearch.analysis.records import json_ready, record
from allocsearch.analysis.statistics import CONFIDENCE, search_variances
from allocsearch.errors import ConfigError
from allocsearch.results import TrialResult

Row = dict[str, Any]
MODES = ("search", "claim", "sweep")


def summary_rows(
    results: Iterable[TrialResult],
    finalists: Mapping[Key, Mapping[str, float]] | None = None,
    arms: Sequence[str] = ARMS,
) -> list[Row]:
    """The best trial of every (budget, expert, arm), or that there is none.

    Args:
        results: trials in any order.
        finalists: test metrics of the winners, where they were re-evaluated.
        arms: arms to report for every (budget, expert), also without a trial.

    Returns:
        Rows in listing order: the winner's record; ``"test"`` metrics; how many trials
        the arm has, by state; and how many are complete per depth. An arm without a
        complete trial has a row whose ``"number"`` is None.
    """
    groups = grouped(results)
    best = best_by_arm(r for group in groups.values() for r in group)
    variances = search_variances(r for group in groups.values() for r in group)
    pairs = dict.fromkeys(key[:2] for key in groups)
    keys = [(*pair, arm) for pair in pairs for arm in arms]
    rows = []
    for key in keys:
        winner = best.get(key)
        sibling = next(g[0] for k, g in groups.items() if k[:2] == key[:2])
        row = record(winner, variances[key]) if winner else _no_winner(sibling, key)
        counts = _counts(groups.get(key, []))
        test = dict((finalists or {}).get(key, {}))
        rows.append(json_ready({**row, "test": test, **counts}))
    return rows


def _no_winner(sibling: TrialResult, key: Key) -> Row:
    return {
        "study": sibling.study,
        "task": sibling.task,
        "budget": sibling.budget,
        "budget_flops": sibling.budget_flops,
        "expert": sibling.allocation.expert,
        "arm": key[2],
        "number": None,
        "objective": sibling.objective.name,
        "score_unit": sibling.objective.unit,
        "direction": sibling.objective.direction,
        "horizon": sibling.horizon,
        "unit": sibling.unit,
    }


def _counts(group: Sequence[TrialResult]) -> Row:
    scored = [result for result in group if has_score(result)]
    depths = Counter(result.allocation.depth for result in scored)
    return {
        "n_trials": len(group),
        "n_scored": len(scored),
        "n_failed": sum(result.state == "failed" for result in group),
        "n_pruned": sum(result.state == "pruned" for result in group),
        "n_running": sum(result.state == "running" for result in group),
        "scored_per_depth": {str(depth): depths[depth] for depth in sorted(depths)},
    }


def trials_rows(results: Iterable[TrialResult]) -> list[Row]:
    """Every trial, by budget, expert and number, the recurrent of a number first.

    ``"best"`` marks the best of its (budget, expert, arm).
    """
    results = list(results)
    winners = {id(result) for result in best_by_arm(results).values()}
    variances = search_variances(results)
    rows = []
    for result in sorted(results, key=_numeric_order):
        best = id(result) in winners
        rows.append({**record(result, variances[key_of(result)]), "best": best})
    return json_ready(rows)


def _numeric_order(result: TrialResult) -> tuple:
    expert = result.allocation.expert
    arm = ARMS.index(result.arm)
    return result.budget_flops, result.budget, expert, result.number, arm


def detail_row(result: TrialResult, results: Iterable[TrialResult] = ()) -> Row:
    """Everything about one trial.

    Args:
        result: the trial.
        results: the trials of its study, over which the interval's variance is pooled.

    Returns:
        Its record, every seed with its whole curve, the allocation and provenance.
    """
    variance = search_variances([*results] or [result]).get(key_of(result))
    stored = result.to_dict()
    extra = ("allocation", "objectives", "seeds", "plugins", "checkpoint")
    return json_ready(
        {
            **record(result, variance),
            "label": result.allocation.label,
            "digest": result.allocation.digest,
            "confidence": CONFIDENCE,
            **{name: stored[name] for name in extra},
        }
    )


def pareto_rows(results: Iterable[TrialResult], x: str = "depth") -> list[Row]:
    """The Pareto front of every (budget, expert, arm).

    Args:
        results: trials in any order.
        x: a name in `pareto.AXES`.

    Returns:
        Records in listing order, cheapest first, with ``"x"`` (the axis) and ``"cost"``
        (the value on it).

    Raises:
        UnknownNameError: an unknown axis.
        ConfigError: trials with different objectives.
    """
    results = list(results)
    axis = find_axis(x)
    variances = search_variances(results)
    return [
        json_ready({"x": x, "cost": axis.read(r), **record(r, variances[key])})
        for key, front in pareto_fronts(results, x).items()
        for r in front
    ]


def summary_notes(rows: Sequence[Row], mode: str = "search") -> list[str]:
    """Sentences that belong below the summary of one (budget, expert).

    They compare the winners' scores but say nothing about depth: that takes `compare`
    on a study in claim mode.

    Args:
        rows: of `summary_rows`, all of the same budget and expert.
        mode: "search", "claim" or "sweep".

    Returns:
        Plain sentences; text of users and plug-ins in them is not escaped.

    Raises:
        ConfigError: an unknown mode.
    """
    if mode not in MODES:
        raise ConfigError(f"mode is {mode!r}: use one of {', '.join(MODES)}")
    found = [row for row in rows if row["number"] is not None]
    notes = [_missing_note(row) for row in rows if row["number"] is None]
    if len(found) == 2:
        notes.append(_difference_note(*found))
        if len({row["horizon"] for row in found}) > 1:
            notes.append("The two were trained for different horizons.")
    notes += [
        f"The {arm_label(row['arm'])} trial #{row['number']} is not matched: its work "
        "lies outside the budget's feasible band."
        for row in found
        if not row["matched"]
    ]
    return notes + ([_mode_note(found, mode)] if found else [])


def _missing_note(row: Row) -> str:
    arm = arm_label(row["arm"])
    if not row["n_trials"]:
        return f"No {arm} trial was run."
    failed, running = row["n_failed"], row["n_running"]
    return (
        f"No {arm} trial is complete with a finite score "
        f"({row['n_trials']} tried, {failed} failed, {running} running)."
    )


def _difference_note(a: Row, b: Row) -> str:
    difference = a["score"] - b["score"]
    if a["direction"] == "minimize":
        difference = -difference
    ahead = arm_label((a if difference >= 0 else b)["arm"])
    if difference == 0:
        return f"Both arms score the same {a['objective']}."
    errors = [a["standard_error"], b["standard_error"]]
    error = None if None in errors else math.hypot(*errors)
    tail = "" if error is None else " (± standard error of the difference)"
    gap = format_score(abs(difference), error)
    unit = "" if a["score_unit"] == a["objective"] else f" {a['score_unit']}"
    return f"The best {ahead} {a['objective']} is ahead by {gap}{unit}{tail}."


def _mode_note(found: Sequence[Row], mode: str) -> str:
    if mode == "claim":
        arms = [f"{arm_label(r['arm'])} {_per_depth(r)}" for r in found]
        return f"Claim mode: complete trials per depth: {'; '.join(arms)}."
    sizes = {row["n_scored"] for row in found}
    if len(sizes) == 1 and len(found) > 1:
        best = f"best of {sizes.pop()} found in each arm"
    else:
        each = [f"best of {r['n_scored']} {arm_label(r['arm'])}" for r in found]
        best = f"{listing(each)} found"
    bound = " work is only bounded from above;" if mode == "sweep" else ""
    return f"{mode.capitalize()} mode: {best};{bound} not a claim about depth."


def _per_depth(row: Row) -> str:
    return ", ".join(f"L={L}: {n}" for L, n in row["scored_per_depth"].items())
