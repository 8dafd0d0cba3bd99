"""Scores of trained networks, from a checkpoint alone."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from allocsearch import checkpoint
from allocsearch.analysis.cells import words
from allocsearch.analysis.fitted import Column, FittedTable
from allocsearch.analysis.formats import arm_label, format_number, plain
from allocsearch.analysis.rows import Row
from allocsearch.cli.exits import NothingToDo
from allocsearch.cli.flags import Flags
from allocsearch.cli.naming import find_trial, name_of
from allocsearch.cli.printing import show, show_json
from allocsearch.config import merge, parse_setting
from allocsearch.errors import ConfigError, unknown_name
from allocsearch.study import load_study
from allocsearch.tasks.resolve import build_task
from allocsearch.trial import candidate_from, evaluate_checkpoint

SPLITS = ("valid", "test")


def locate(name: str, trial: str | None, directory: Path) -> Path:
    """The folder of a checkpoint, given as such or as a study's trial.

    Raises:
        CheckpointError, StudyError: there is none.
        NothingToDo: the trial has trained nothing.
    """
    path = Path(name)
    if trial is None and (checkpoint.exists(path) or not is_study(name, directory)):
        checkpoint.read_manifest(path)
        return path
    study = load_study(name, directory)
    if trial is None:
        raise ConfigError(f"{name} is a study: say which trial, as in recurrent/best")
    found = find_trial(study, trial)
    path = study.directory / found.checkpoint
    if not checkpoint.exists(path):
        raise NothingToDo(
            f"trial {name_of(found)} is {found.state} and has no checkpoint to evaluate"
        )
    return path


def is_study(name: str, directory: Path) -> bool:
    """Whether a name or path is that of a study."""
    return any((p / "study.json").exists() for p in (Path(name), directory / name))


def print_scores(
    path: Path, split: str, flags: Flags, settings: Sequence[str], as_json: bool
) -> None:
    """Score a checkpoint on a split and print it beside the baseline.

    Args:
        path: the checkpoint's folder.
        split: "valid" or "test".
        flags: whose task and data override what the checkpoint was trained on.
        settings: ``task.field=value``, likewise.
        as_json: whether stdout is to be JSON.
    """
    row = _scores(path, split, flags, settings)
    if as_json:
        show_json(row)
    else:
        show(scores_table(row))


def _scores(path: Path, split: str, flags: Flags, settings: Sequence[str]) -> Row:
    if split not in SPLITS:
        raise unknown_name("split", split, SPLITS)
    metadata = checkpoint.read_manifest(path)["metadata"]
    candidate = candidate_from(metadata["candidate"])
    given = [flags.values(), *map(parse_setting, settings)]
    fields = merge({"task": dict(candidate.task)}, *given)["task"]
    task, config = build_task(fields.pop("name"), fields)
    seeds = evaluate_checkpoint(path, task, split)
    horizon = candidate.training.horizon or metadata["steps"]
    return {
        "checkpoint": str(path),
        "label": candidate.allocation.label,
        "arm": candidate.allocation.arm,
        "trained": min(1.0, metadata["steps"] / horizon),
        "task": config,
        "split": split,
        "metrics": {name: fmean(m[name] for m in seeds) for name in seeds[0]},
        "baseline": task.baseline(split),
        "seeds": [
            {"seed": seed, "metrics": metrics}
            for seed, metrics in zip(candidate.seeds, seeds, strict=True)
        ],
    }


def scores_table(row: Row) -> FittedTable:
    """Metrics per seed, their mean, and the untrained baseline."""
    last = ("mean", *(["untrained"] if row["baseline"] else []))
    seeds = row["seeds"] if len(row["seeds"]) > 1 else []
    labels = [*(str(seed["seed"]) for seed in seeds), *last]
    lines = [*(seed["metrics"] for seed in seeds), row["metrics"], row["baseline"]]
    lines = lines[: len(labels)]
    columns = [Column("seed", labels, "left")]
    columns += [
        Column(words(name), [format_number(line.get(name)) for line in lines])
        for name in row["metrics"]
    ]
    notes = [f"On {row['split']} data of task {plain(row['task']['name'])}."]
    if row["trained"] < 1:
        notes.append(f"Training was not finished: {row['trained']:.0%} of its horizon.")
    breaks = [len(seeds) - 1] if seeds else []
    title = f"{arm_label(row['arm'])} {plain(row['label'])}"
    return FittedTable(title, columns, notes, breaks=breaks)
