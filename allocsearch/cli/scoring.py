"""Scores of trained networks, from a checkpoint alone."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from allocsearch import checkpoint
from allocsearch.analysis.bootstrap import bootstrap_intervals
from allocsearch.analysis.cells import words
from allocsearch.analysis.fitted import Column, FittedTable
from allocsearch.analysis.formats import arm_label, format_number, plain
from allocsearch.analysis.rows import Row
from allocsearch.candidate import describe_checkpoint, evaluate_checkpoint_each
from allocsearch.checkpoint import Place
from allocsearch.cli.exits import NothingToDo
from allocsearch.cli.flags import Flags
from allocsearch.cli.item_files import check_item_file, write_items
from allocsearch.cli.naming import find_trial, name_of
from allocsearch.cli.printing import note, show, show_json
from allocsearch.errors import ConfigError, unknown_name
from allocsearch.parsing import merge, parse_setting
from allocsearch.results import TrialResult
from allocsearch.study import load_study
from allocsearch.tasks.records import Scores
from allocsearch.tasks.resolve import build_task

SPLITS = ("valid", "test")


def locate(name: str, trial: str | None, directory: Path) -> Place:
    """The folder of a checkpoint, given as such or as a study's trial.

    Raises:
        CheckpointError, StudyError: there is none.
        NothingToDo: the trial has trained nothing.
    """
    path = checkpoint.as_place(name)
    if trial is None and (checkpoint.exists(path) or not is_study(name, directory)):
        checkpoint.read_manifest(path)
        return path
    study = load_study(name, directory)
    if trial is None:
        raise ConfigError(f"{name} is a study: say which trial, as in recurrent/best")
    found = find_trial(study, trial)
    path = study.checkpoint_at(found.checkpoint)
    if not checkpoint.exists(path):
        raise NothingToDo(_why_absent(found, study.config.output.keep))
    return path


def _why_absent(trial: TrialResult, keep: int | str) -> str:
    if trial.state != "complete":
        return (
            f"trial {name_of(trial)} is {trial.state} and has no checkpoint to evaluate"
        )
    return (
        f"the checkpoint of trial {name_of(trial)} was not kept, as output.keep is "
        f"{keep!r}: train it again with `allocsearch train`, or run studies with "
        "--set output.keep=all"
    )


def is_study(name: str, directory: Path) -> bool:
    """Whether a name or path is that of a study."""
    return any((p / "study.json").exists() for p in (Path(name), directory / name))


def print_scores(
    path: Place,
    split: str,
    flags: Flags,
    settings: Sequence[str],
    out: Path | None,
    as_json: bool,
) -> None:
    """Score a checkpoint on a split and print it beside the baseline.

    Args:
        path: the checkpoint's folder.
        split: "valid" or "test".
        flags: whose task and data override what the checkpoint was trained on.
        settings: ``task.field=value``, likewise.
        out: where to write what each item scored, if anywhere.
        as_json: whether stdout is to be JSON.
    """
    if out is not None:
        check_item_file(out)
    row, scores = _scores(path, split, flags, settings)
    if out is not None:
        _write(out, row, scores)
    if as_json:
        show_json(row)
    else:
        show(scores_table(row))


def _write(out: Path, row: Row, scores: Sequence[Scores]) -> None:
    if not scores[0].items:
        raise ConfigError(
            f"task {row['task']['name']!r} does not tell what each item scored, so "
            f"there is nothing to write to {out}: leave --out away"
        )
    seeds = [seed["seed"] for seed in row["seeds"]]
    write_items(out, seeds, [score.items for score in scores])
    note(f"{len(seeds) * row['n_items']} rows written to {out}")


def _scores(
    path: Place, split: str, flags: Flags, settings: Sequence[str]
) -> tuple[Row, list[Scores]]:
    if split not in SPLITS:
        raise unknown_name("split", split, SPLITS)
    candidate, steps = describe_checkpoint(path, note)
    fields = task_fields(candidate.task, flags, settings)
    task, config = build_task(fields.pop("name"), fields)
    scores = evaluate_checkpoint_each(path, task, split)
    seeds = [score.metrics for score in scores]
    *each, overall = _intervals(scores)
    horizon = candidate.training.horizon or steps
    row = {
        "checkpoint": str(path),
        "label": candidate.allocation.label,
        "arm": candidate.allocation.arm,
        "trained": min(1.0, steps / horizon) if horizon else 0.0,
        "task": config,
        "split": split,
        "metrics": {name: fmean(m[name] for m in seeds) for name in seeds[0]},
        "intervals": overall,
        "baseline": task.baseline(split),
        "seeds": [
            {
                "seed": seed,
                "metrics": score.metrics,
                "intervals": intervals,
                "details": dict(score.details),
            }
            for seed, score, intervals in zip(
                candidate.seeds, scores, each, strict=True
            )
        ],
        "n_items": _n_items(scores),
    }
    return row, scores


def task_fields(
    own: Mapping[str, Any], flags: Flags, settings: Sequence[str]
) -> dict[str, Any]:
    """A task's name and fields, with flags and ``task.field=value`` over its own."""
    given = [flags.values(), *map(parse_setting, settings)]
    return dict(merge({"task": dict(own)}, *given)["task"])


def _n_items(scores: Sequence[Scores]) -> int:
    """Items that every network was scored on; 0 where the task does not tell."""
    return len(next(iter(scores[0].items.values()), ()))


def _intervals(scores: Sequence[Scores]) -> list[dict[str, list[float]]]:
    """Bootstrap intervals over items, by metric: of each network, then of their mean.

    Networks are held fixed: all are scored on the items drawn.
    """
    means = scores[0].means
    if not means:
        return [{} for _ in (*scores, "mean")]
    columns = [[score.items[name] for name in means.values()] for score in scores]
    values = np.asarray(columns, float)  # networks, metrics, items
    values = np.concatenate([values, values.mean(axis=0, keepdims=True)])
    ends = bootstrap_intervals(values.reshape(-1, values.shape[-1]).T)
    return [
        dict(zip(means, own.tolist(), strict=True))
        for own in ends.reshape(*values.shape[:2], 2)
    ]


def scores_table(row: Row) -> FittedTable:
    """Metrics per seed, their mean with its interval, and the untrained baseline."""
    seeds = row["seeds"] if len(row["seeds"]) > 1 else []
    rows = [(str(seed["seed"]), seed["metrics"]) for seed in seeds]
    rows.append(("mean", row["metrics"]))
    intervals = row.get("intervals", {})
    for i, label in enumerate(("95 % from", "95 % to") if intervals else ()):
        rows.append((label, {name: ends[i] for name, ends in intervals.items()}))
    if row["baseline"]:
        rows.append(("untrained", row["baseline"]))
    labels, lines = zip(*rows, strict=True)
    columns = [Column("seed", labels, "left")]
    columns += [
        Column(words(name), [format_number(line.get(name)) for line in lines])
        for name in row["metrics"]
    ]
    notes = [f"On {row['split']} data of task {plain(row['task']['name'])}."]
    if intervals:
        notes.append(f"Bootstrap interval of the mean over {row['n_items']} items.")
    if row["trained"] < 1:
        notes.append(f"Training was not finished: {row['trained']:.0%} of its horizon.")
    breaks = [len(seeds) - 1] if seeds else []
    title = f"{arm_label(row['arm'])} {plain(row['label'])}"
    return FittedTable(title, columns, notes, breaks=breaks)
