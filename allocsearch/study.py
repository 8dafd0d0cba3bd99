"""A study: a folder with its config, its trials, and what came of them.

study = allocsearch.run({"task": "sokoban", "budgets": "tiny"})
study.results()   # a data frame, one row per trial
study.pareto()    # the trials that no other beats in score and depth
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import yaml

from allocsearch.analysis.best import best_by_arm
from allocsearch.analysis.pareto import pareto_front
from allocsearch.config import EXTENDED, StudyConfig, load_config
from allocsearch.errors import AllocsearchError, StudyError, unknown_name
from allocsearch.folder import (
    STUDY_FORMAT,
    read_json,
    read_manifest,
    write_json,
    write_text,
)
from allocsearch.manifest import describe_environment, first_difference
from allocsearch.parsing import merge, parse
from allocsearch.results import TrialResult, seeds_of
from allocsearch.search import SearchStudy, TrialRecord
from allocsearch.search.storage import with_password, without_password

# Looking at a study needs no JAX: what trains is imported where training begins.
if TYPE_CHECKING:
    import pandas as pd

    from allocsearch.plan import Cell

_GROUPS = "group/"
STORAGE_VARIABLE = "ALLOCSEARCH_STORAGE"


class Study:
    """One study on disk. `run` and `load_study` give one."""

    def __init__(self, directory: Path, config: StudyConfig):
        """A study that exists; meant for `run` and `load_study`."""
        self.directory = directory
        self.config = config

    @property
    def name(self) -> str:
        """The study's name."""
        return self.config.study_name

    @property
    def storage(self) -> str:
        """The SQLAlchemy URL of its trials.

        A study keeps no password: that comes from `ALLOCSEARCH_STORAGE`, the whole URL,
        or from where the database's own library looks (PGPASSWORD, ~/.pgpass).
        """
        stored = self.config.output.storage
        if stored is None:
            return f"sqlite:///{(self.directory / 'study.db').resolve()}"
        return with_password(stored, os.environ.get(STORAGE_VARIABLE))

    @cached_property
    def cells(self) -> "list[Cell]":
        """The searches of this study; loads the task's data.

        Raises:
            AllocsearchError: as `plan`.
        """
        from allocsearch.plan import plan

        return plan(self.config)

    def trials(self, cells: Sequence[str] | None = None) -> list[TrialResult]:
        """Every trial, cell by cell, in order of number. Needs no data and no JAX.

        Args:
            cells: names of the only cells to look at.

        Raises:
            StudyError: the database cannot be used.
        """
        found: list[TrialResult] = []
        for name in self.manifest["cells"] if cells is None else cells:
            search = SearchStudy.load(self.storage, f"{self.name}/{name}")
            found += results_of(search)
            search.close()
        return found

    def results(self) -> "pd.DataFrame":
        """One row per trial: allocation, score ± error, work, horizon, provenance."""
        from allocsearch.analysis.frame import results_frame

        return results_frame(self.trials())

    def pareto(self, x: str = "depth") -> list[TrialResult]:
        """The complete trials that none beats in both score and `x`.

        Args:
            x: an axis of `allocsearch.analysis.pareto.AXES`; less is better.
        """
        return pareto_front(self.trials(), x)

    def finalists(self) -> dict[tuple[str, str, str], dict[str, float]]:
        """Test metrics of the best trials, by (budget, expert, arm).

        Empty until the study is complete. Entries of trials that are no longer the
        best are left out.
        """
        path = self.directory / "finalists.json"
        if not path.exists():
            return {}
        best = {key: trial.number for key, trial in best_by_arm(self.trials()).items()}
        try:
            return {
                key: dict(entry["metrics"])
                for entry in read_json(path)
                if best.get(key := tuple(entry["key"])) == entry["number"]
            }
        except (LookupError, TypeError, ValueError) as error:
            raise StudyError(
                f"{path} is damaged: delete it, and `allocsearch resume` scores again"
            ) from error

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """What was stored when the study began: config, data, versions, device."""
        return read_manifest(self.directory)

    def checkpoint_of(self, cell: str, number: int, group: int = 0) -> Path | str:
        """Where a trial's checkpoint is, or would be, or that of further seeds.

        Returns:
            A folder or a URL.
        """
        return self.checkpoint_at(checkpoint_name(cell, number, group))

    def checkpoint_at(self, name: str) -> Path | str:
        """Where a checkpoint of this name is, as results have it.

        Raises:
            StudyError: the name leads out of the study.
        """
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or "\\" in name:
            raise StudyError(
                f"study {self.directory} is damaged: checkpoint {name!r} is not in it"
            )
        root = self.config.output.checkpoints
        if root is None:
            return self.directory / name
        if "://" in root:
            return f"{root.rstrip('/')}/{self.name}/{name}"
        return Path(root) / self.name / name


def checkpoint_name(cell: str, number: int, group: int = 0) -> str:
    """How results call a trial's checkpoint, or that of a group of further seeds."""
    suffix = "" if group == 0 else "-fresh" if group < 0 else f"-{group}"
    return f"trials/{cell}/{number:05d}{suffix}"


def study_directory(config: StudyConfig) -> Path:
    """The folder of a study."""
    return Path(config.output.directory) / config.study_name


def new_study(config: StudyConfig | Mapping[str, Any] | str | Path) -> Study:
    """A study as a config describes it; nothing is checked or written yet.

    Raises:
        ConfigError: a file cannot be read or a field is wrong.
    """
    if isinstance(config, str | Path):
        config = load_config(config)
    elif not isinstance(config, StudyConfig):
        config = load_config(base=config)
    return Study(study_directory(config), config)


def load_study(name: str | Path, directory: str | Path = "studies") -> Study:
    """A study that was begun before.

    Args:
        name: its name, or the path of its folder.
        directory: where studies are.

    Raises:
        StudyError: there is none, or its folder is damaged.
    """
    path = Path(name)
    if not (path / "study.json").exists():
        path = Path(directory) / name
    if not (path / "study.json").exists():
        known = [p.parent.name for p in Path(directory).glob("*/study.json")]
        raise StudyError(str(unknown_name("study", str(name), known)))
    manifest = read_manifest(path)
    try:
        config = parse(StudyConfig, manifest["config"])
    except (KeyError, AllocsearchError) as error:
        raise StudyError(f"study {path} is damaged: {error}") from error
    output = config.output.model_copy(update={"directory": str(path.parent)})
    return Study(path, config.model_copy(update={"output": output}))


def prepare(config: Study | StudyConfig | Mapping[str, Any] | str | Path) -> Study:
    """Check a config and make the study's folder, without training anything.

    Raises:
        As `run`.
    """
    study = config if isinstance(config, Study) else new_study(config)
    fresh = _manifest(study)
    path = study.directory / "study.json"
    if path.exists():
        stored = read_manifest(study.directory)
        _refuse_change(study, stored, fresh)
        given = study.config.search.model_dump(mode="json", exclude_unset=True)
        more = {name: value for name, value in given.items() if name in EXTENDED}
        config = merge(stored["config"], {"search": more} if more else {})
        if config != stored["config"] or stored["n_trials"] != fresh["n_trials"]:
            # Nothing else: where and how this process runs is its own affair.
            renewed = {"config": config, "n_trials": fresh["n_trials"]}
            write_json(path, {**stored, **renewed})
    else:
        write_text(study.directory / "config.yaml", yaml.safe_dump(fresh["config"]))
        write_json(path, fresh)
    return study


def _manifest(study: Study) -> dict[str, Any]:
    settings = {cell.budget: cell.setting for cell in study.cells}
    return {
        "format": STUDY_FORMAT,
        "name": study.name,
        "config": _without_secrets(study.config.given()),
        "seed": study.config.seed,
        "cells": [cell.name for cell in study.cells],
        "n_trials": {cell.name: cell.n_trials for cell in study.cells},
        "settings": {name: s.describe() for name, s in settings.items()},
        "data": {name: s.task.manifest() for name, s in settings.items()},
        "environment": describe_environment(),
    }


def _without_secrets(config: dict[str, Any]) -> dict[str, Any]:
    output = config.get("output", {})
    if output.get("storage") is None:
        return config
    storage = without_password(output["storage"])
    return {**config, "output": {**output, "storage": storage}}


def _refuse_change(
    study: Study, old: Mapping[str, Any], new: Mapping[str, Any]
) -> None:
    for part in ("seed", "cells", "settings", "data"):
        # Through JSON, so that tuples and lists compare equal.
        change = first_difference(old[part], json.loads(json.dumps(new[part])), part)
        if change:
            raise StudyError(
                f"study {study.name!r} in {study.directory} was begun with another "
                f"configuration: {change}. Give --name (or `name:`) another value, or "
                "`allocsearch resume` to go on with the old one"
            )


def results_of(
    search: SearchStudy, most_groups: int | None = None
) -> list[TrialResult]:
    """The trials of one search, with the further seeds that some of them got.

    Args:
        search: an open search.
        most_groups: how many groups of further seeds to count; all if left out.
    """
    results = [result_of(r) for r in search.records() if not r.refused]
    known = {result.number: result for result in results if result is not None}
    try:
        for number, group, stored in _groups_of(search):
            if number in known:
                known[number] = _with_group(known[number], group, stored, most_groups)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise StudyError(
            f"search {search.name!r} is damaged: what the database says of further "
            "seeds cannot be read"
        ) from error
    return list(known.values())


def group_key(number: int, group: int) -> str:
    """Under which name a search keeps what came of a trial's group of further seeds."""
    return f"{_GROUPS}{number}/{group}"


def _groups_of(search: SearchStudy) -> list[tuple[int, int, Mapping[str, Any]]]:
    """Trial, group and what came of it, in order."""
    groups = [
        (int(number), int(group), stored)
        for key, stored in search.annotations().items()
        if key.startswith(_GROUPS)
        for _, number, group in [key.split("/")]
    ]
    return sorted(groups, key=lambda entry: entry[:2])


def _with_group(
    result: TrialResult, group: int, stored: Mapping[str, Any], most: int | None
) -> TrialResult:
    seeds = seeds_of(stored["seeds"])
    if group < 0:
        return replace(result, confirmed=seeds)
    if most is not None and group > most:
        return result
    return replace(
        result,
        seeds=result.seeds + seeds,
        seconds=result.seconds + float(stored["seconds"]),
    )


def result_of(record: TrialRecord) -> TrialResult | None:
    """A stored trial as analysis reads it; None where none was begun."""
    stored = record.attributes.get("result")
    if stored is None:
        return None
    try:
        result = TrialResult.from_dict(stored)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise StudyError(
            f"trial {record.number} is damaged: what the database says of it cannot "
            "be read"
        ) from error
    started = record.started.isoformat(timespec="seconds") if record.started else ""
    finished = record.finished.isoformat(timespec="seconds") if record.finished else ""
    return replace(
        result,
        state=record.state,
        reason=record.reason or "",
        started=started,
        finished=finished,
    )
