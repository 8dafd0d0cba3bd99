"""A study: a folder with its config, its trials, and what came of them.

study = allocsearch.run({"task": "sokoban", "budgets": "tiny"})
study.results()   # a data frame, one row per trial
study.pareto()    # the trials that no other beats in score and depth
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from allocsearch.analysis.best import best_by_arm
from allocsearch.analysis.pareto import pareto_front
from allocsearch.config import StudyConfig, load_config, merge, parse
from allocsearch.errors import AllocsearchError, StudyError, unknown_name
from allocsearch.folder import read_json, write_json, write_text
from allocsearch.manifest import describe_environment, first_difference
from allocsearch.results import TrialResult
from allocsearch.search import SearchStudy, TrialRecord

# Looking at a study needs no JAX: what trains is imported where training begins.
if TYPE_CHECKING:
    import pandas as pd

    from allocsearch.plan import Cell

FORMAT = 1


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
        """The SQLAlchemy URL of its trials."""
        default = f"sqlite:///{(self.directory / 'study.db').resolve()}"
        return self.config.output.storage or default

    @cached_property
    def cells(self) -> "list[Cell]":
        """The searches of this study; loads the task's data.

        Raises:
            AllocsearchError: as `plan`.
        """
        from allocsearch.plan import plan

        return plan(self.config)

    def trials(self) -> list[TrialResult]:
        """Every trial, cell by cell, in order of number. Needs no data and no JAX.

        Raises:
            StudyError: the database cannot be used.
        """
        found = []
        for name in self.manifest["cells"]:
            search = SearchStudy.load(self.storage, f"{self.name}/{name}")
            records = search.records()
            search.close()
            found += [_result_of(record) for record in records if not record.refused]
        return [result for result in found if result is not None]

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
        return {
            key: entry["metrics"]
            for entry in read_json(path)
            if best.get(key := tuple(entry["key"])) == entry["number"]
        }

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """What was stored when the study began: config, data, versions, device."""
        return read_json(self.directory / "study.json")

    def checkpoint_of(self, cell: str, number: int) -> Path:
        """Where a trial's checkpoint is, or would be."""
        return self.directory / "trials" / cell / f"{number:05d}"


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
    manifest = read_json(path / "study.json")
    if manifest.get("format") != FORMAT:
        raise StudyError(
            f"study {path} was made by a version that this one cannot read"
        )
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
        stored = read_json(path)
        _refuse_change(study, stored, fresh)
        n_trials = study.config.search.n_trials
        if n_trials is not None and stored["n_trials"] != fresh["n_trials"]:
            # Nothing else: where and how this process runs is its own affair.
            config = merge(stored["config"], {"search": {"n_trials": n_trials}})
            renewed = {"config": config, "n_trials": fresh["n_trials"]}
            write_json(path, {**stored, **renewed})
    else:
        write_text(study.directory / "config.yaml", yaml.safe_dump(fresh["config"]))
        write_json(path, fresh)
    return study


def _manifest(study: Study) -> dict[str, Any]:
    settings = {cell.budget: cell.setting for cell in study.cells}
    return {
        "format": FORMAT,
        "name": study.name,
        "config": study.config.given(),
        "seed": study.config.seed,
        "cells": [cell.name for cell in study.cells],
        "n_trials": {cell.name: cell.n_trials for cell in study.cells},
        "settings": {name: s.describe() for name, s in settings.items()},
        "data": {name: s.task.manifest() for name, s in settings.items()},
        "environment": describe_environment(),
    }


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


def _result_of(record: TrialRecord) -> TrialResult | None:
    stored = record.attributes.get("result")
    if stored is None:
        return None
    started = record.started.isoformat(timespec="seconds") if record.started else ""
    finished = record.finished.isoformat(timespec="seconds") if record.finished else ""
    return replace(
        TrialResult.from_dict(stored),
        state=record.state,
        reason=record.reason or "",
        started=started,
        finished=finished,
    )
