"""A study: a folder with its config, its trials, and what came of them.

study = allocsearch.run({"task": "sokoban", "budgets": "tiny"})
study.results()   # a data frame, one row per trial
study.pareto()    # the trials that no other beats in score and depth
"""

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import yaml

from allocsearch.analysis.best import best_by_arm
from allocsearch.analysis.pareto import pareto_front
from allocsearch.config import StudyConfig, load_config, parse
from allocsearch.errors import (
    AllocsearchError,
    CheckpointError,
    DataError,
    StudyError,
    unknown_name,
)
from allocsearch.folder import Lock, read_json, set_aside, write_json, write_text
from allocsearch.manifest import describe_environment, first_difference
from allocsearch.results import TrialResult
from allocsearch.search import Proposal, SearchStudy, SpaceExhausted, TrialRecord
from allocsearch.search.seeds import derive_seed
from allocsearch.work import Audit

# Looking at a study needs no JAX: what trains is imported where training begins.
if TYPE_CHECKING:
    import pandas as pd

    from allocsearch.plan import Cell
    from allocsearch.trial import Candidate, Outcome, Progress

FORMAT = 1


class Observer:
    """Told what a study does; the default says nothing."""

    def study_started(self, study: "Study") -> None:
        """Trials are about to run; cells and earlier trials can be read."""

    def study_stopped(self, study: "Study") -> None:
        """`should_stop` said so: a checkpoint is written and the study can go on."""

    def trial_started(self, cell: "Cell", number: int, candidate: "Candidate") -> None:
        """A trial begins, or is taken up again."""

    def trial_progressed(self, progress: "Progress") -> None:
        """The trial that began last is this far."""

    def trial_finished(self, result: TrialResult) -> None:
        """That trial is complete or has failed."""

    def note(self, text: str) -> None:
        """Something the user should know, in a sentence."""


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


def run(
    config: "Study | StudyConfig | Mapping[str, Any] | str | Path",
    *,
    observer: Observer | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Study:
    """Begin a study or go on with it, until every trial is done.

    Args:
        config: a config, the same as a mapping, the path of a YAML file, or a study.
        observer: told what happens.
        should_stop: asked between chunks; True checkpoints and returns early.

    Returns:
        The study; `results`, `pareto` and `finalists` read it.

    Raises:
        ConfigError, UnknownNameError, BudgetError, DataError, PluginError: the config
            cannot be used; nothing is written.
        StudyError: a study of this name was begun otherwise, or is being run now.
    """
    study = prepare(config)
    _Runner(study, observer or Observer(), should_stop).run()
    return study


def prepare(config: Study | StudyConfig | Mapping[str, Any] | str | Path) -> Study:
    """Check a config and make the study's folder, without training anything.

    Raises:
        As `run`.
    """
    study = config if isinstance(config, Study) else new_study(config)
    fresh = _manifest(study)
    path = study.directory / "study.json"
    if path.exists():
        _refuse_change(study, read_json(path), fresh)
        if study.config.search.n_trials is not None:
            renewed = {name: fresh[name] for name in ("config", "n_trials")}
            write_json(path, {**read_json(path), **renewed})
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


class _Runner:
    """Runs the trials of a study in this process, one after the other."""

    def __init__(
        self, study: Study, observer: Observer, should_stop: Callable[[], bool]
    ):
        self.study, self.observer, self.should_stop = study, observer, should_stop

    def run(self) -> None:
        from allocsearch.trial import Interrupted

        with self._lock():
            searches = {cell.name: self._open(cell) for cell in self.study.cells}
            self.observer.study_started(self.study)
            for warning in self._warnings():
                self.observer.note(warning)
            try:
                self._adopt(searches)
                self._search(searches)
                self._score_finalists()
            except Interrupted:
                self.observer.study_stopped(self.study)
            finally:
                for search in searches.values():
                    search.close()

    def _warnings(self) -> list[str]:
        """Each once, in order, though several cells give it."""
        every = [w for cell in self.study.cells for w in cell.setting.warnings]
        return list(dict.fromkeys(every))

    def _lock(self) -> AbstractContextManager[Any]:
        return Lock(self.study.directory / "lock", f"study {self.study.name!r}")

    def _open(self, cell: "Cell") -> SearchStudy:
        sampler, options = cell.sampler
        objectives = cell.setting.task.objectives
        return SearchStudy.open(
            self.study.storage,
            f"{self.study.name}/{cell.name}",
            cell.points,
            directions=(objectives[0].direction,),
            sampler=sampler,
            sampler_options=options,
            seed=derive_seed(self.study.config.seed, cell.name),
        )

    def _adopt(self, searches: dict[str, SearchStudy]) -> None:
        for cell in self.study.cells:
            for proposal in searches[cell.name].running():
                self._trial(cell, searches[cell.name], proposal)

    def _search(self, searches: dict[str, SearchStudy]) -> None:
        from allocsearch.trial import Interrupted

        counts = {name: _n_finished(search) for name, search in searches.items()}
        open_cells = list(self.study.cells)
        while open_cells := [c for c in open_cells if counts[c.name] < c.n_trials]:
            cell = min(open_cells, key=lambda c: counts[c.name])
            if self.should_stop():
                raise Interrupted
            try:
                proposal = searches[cell.name].ask()
            except SpaceExhausted:
                open_cells.remove(cell)
                self.observer.note(
                    f"{cell.name}: all {len(cell.points)} feasible points have been "
                    "tried; the search of this arm ends here"
                )
                continue
            self._trial(cell, searches[cell.name], proposal)
            counts[cell.name] += 1

    def _trial(self, cell: "Cell", search: SearchStudy, proposal: Proposal) -> None:
        from allocsearch.trial import Interrupted, audit_candidate

        candidate = cell.candidate(proposal.values, self.study.config.seed)
        result = self._blank(cell, proposal, candidate)
        search.record(proposal.number, "result", result.to_dict())
        self.observer.trial_started(cell, proposal.number, candidate)
        audit: Audit | None = None
        try:
            task, budget = cell.setting.task, cell.setting.budget
            audit = audit_candidate(task, candidate.allocation, budget)
            outcome = self._train(cell, proposal, candidate)
        except (Interrupted, StudyError):
            raise  # a stop or the disk's fault says nothing about the candidate
        except Exception as error:  # one trial's fault is not the study's
            reason = _reason(candidate, error)
            result = replace(result, state="failed", reason=reason, audit=audit)
            search.fail(proposal.number, reason, {"result": result.to_dict()})
        else:
            result = _complete(result, outcome, audit)
            search.tell(proposal.number, [result.score], {"result": result.to_dict()})
        self.observer.trial_finished(result)

    def _train(
        self, cell: "Cell", proposal: Proposal, candidate: "Candidate"
    ) -> "Outcome":
        from allocsearch.trial import train_candidate

        directory = self.study.checkpoint_of(cell.name, proposal.number)
        train = partial(
            train_candidate,
            cell.setting.task,
            candidate,
            directory=directory,
            checkpoint_seconds=self.study.config.output.checkpoint_seconds,
            should_stop=self.should_stop,
            on_progress=self.observer.trial_progressed,
        )
        try:
            return train()
        except CheckpointError as error:
            self.observer.note(f"{error}; it is set aside and the trial starts anew")
            set_aside(directory)
            return train()

    def _blank(
        self, cell: "Cell", proposal: Proposal, candidate: "Candidate"
    ) -> TrialResult:
        task = cell.setting.task
        path = self.study.checkpoint_of(cell.name, proposal.number)
        return TrialResult(
            study=self.study.name,
            task=cell.setting.task_config["name"],
            budget=cell.budget,
            budget_flops=cell.setting.budget.flops,
            number=proposal.number,
            state="running",
            allocation=candidate.allocation,
            objectives=task.objectives,
            settings={"learning_rate": candidate.training.learning_rate},
            horizon=candidate.training.horizon or task.steps_per_chunk,
            unit=task.unit,
            plugins=cell.plugins(candidate.allocation),
            checkpoint=str(path.relative_to(self.study.directory)),
        )

    def _score_finalists(self) -> None:
        """Score the best trial of each cell on test data, once."""
        from allocsearch.trial import evaluate_checkpoint

        done = self.study.finalists()
        cells = {(c.budget, c.expert.name, c.arm): c for c in self.study.cells}
        entries = []
        for key, trial in best_by_arm(self.study.trials()).items():
            metrics = done.get(key)
            if metrics is None:
                self.observer.note(f"scoring {trial.allocation.label} on test data")
                path = self.study.directory / trial.checkpoint
                try:
                    scores = evaluate_checkpoint(path, cells[key].setting.task, "test")
                except DataError as error:
                    self.observer.note(f"there are no test scores: {error}")
                    continue
                metrics = {n: fmean(s[n] for s in scores) for n in scores[0]}
            entries.append({"key": key, "number": trial.number, "metrics": metrics})
        write_json(self.study.directory / "finalists.json", entries)


def _complete(
    result: TrialResult, outcome: "Outcome", audit: Audit | None
) -> TrialResult:
    return replace(
        result,
        state="complete",
        seeds=outcome.seeds,
        audit=audit,
        seconds=outcome.seconds,
    )


def _n_finished(search: SearchStudy) -> int:
    counts = search.counts()
    return counts["complete"] + counts["failed"]


def _reason(candidate: "Candidate", error: Exception) -> str:
    if isinstance(error, AllocsearchError):
        return str(error)
    text = " ".join(str(error).split())[:300]
    label = candidate.allocation.label
    return f"{label}, seeds {list(candidate.seeds)}: {type(error).__name__}: {text}"


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
