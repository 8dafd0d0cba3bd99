"""Progress bars: the study, and the trial in training with its latest metric."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Column

from allocsearch.analysis.candidates import key_of
from allocsearch.analysis.formats import (
    arm_label,
    format_number,
    format_seconds,
    plain,
)
from allocsearch.cli.lines import Notes, outcome_line, progress_of
from allocsearch.cli.pace import Pace
from allocsearch.results import TrialResult
from allocsearch.study import Study

if TYPE_CHECKING:
    from allocsearch.candidate import Candidate
    from allocsearch.plan import Cell
    from allocsearch.trial import Progress as TrialProgress


class Bars(Notes):
    """Two bars, and a line for every trial that has ended above them."""

    def __init__(self, console: Console):
        """An observer that draws on `console`; use within `shown`."""
        super().__init__(console)
        self._progress = make_progress(console)
        self._study = Bar(self._progress)
        self._trials: dict[tuple[str, int], Bar] = {}
        self._fractions: dict[tuple[str, int], float] = {}
        self._done = 0

    @contextmanager
    def shown(self) -> Iterator[None]:
        """While the bars are on screen."""
        with self._progress:
            yield

    def study_started(self, study: Study) -> None:
        """See `Observer.study_started`."""
        total, self._done = progress_of(study)
        self._study.begin(study.name, total, self._done)
        self._study.move(self._done, f"{self._done}/{total}")

    def trial_started(self, cell: "Cell", number: int, candidate: "Candidate") -> None:
        """See `Observer.trial_started`."""
        bar = self._trials[cell.name, number] = Bar(self._progress)
        bar.begin(f"#{number} {arm_label(cell.arm)} {candidate.allocation.label}", 1.0)
        bar.move(0.0, "compiling")

    def trial_progressed(
        self, cell: "Cell", number: int, progress: "TrialProgress"
    ) -> None:
        """See `Observer.trial_progressed`."""
        objective = cell.setting.task.objectives[0].name
        if (bar := self._trials.get((cell.name, number))) is not None:
            bar.follow(progress, objective)
        self._fractions[cell.name, number] = progress.fraction
        self._move()

    def trial_paused(self, result: TrialResult) -> None:
        """See `Observer.trial_paused`."""
        self._end("/".join(key_of(result)), result.number)
        self.note(outcome_line(result))

    def trial_finished(self, result: TrialResult) -> None:
        """See `Observer.trial_finished`."""
        self._done += 1
        self._end("/".join(key_of(result)), result.number)
        self.note(outcome_line(result))

    def trial_left(self, cell: "Cell", number: int) -> None:
        """See `Observer.trial_left`."""
        self._end(cell.name, number)

    def _end(self, cell: str, number: int) -> None:
        if (bar := self._trials.pop((cell, number), None)) is not None:
            bar.end()
        self._fractions.pop((cell, number), None)
        self._move()

    def _move(self) -> None:
        done = self._done + sum(self._fractions.values())
        self._study.move(done, f"{self._done}/{self._study.total}")


class Bar:
    """One line of the display."""

    def __init__(self, progress: Progress):
        """A line that is not shown yet."""
        self._progress = progress
        self._id: TaskID | None = None
        self._pace: Pace | None = None
        self.total: float = 0
        self.metric = ""
        self.has_metric = False

    def begin(self, title: str, total: float, done: float | None = None) -> None:
        """Show the bar; without `done` its pace counts from the first move."""
        self.end()
        self.total, self.metric, self.has_metric = total, "", False
        self._pace = None if done is None else Pace(total, done)
        self._id = self._progress.add_task(
            plain(title), total=total, count="", left="", metric=""
        )

    def move(self, done: float, count: str) -> None:
        """Draw how much is done; `count` says it in words."""
        if self._id is None:
            return
        left = self._pace.seconds_left(done) if self._pace else None
        if self._pace is None and done > 0:
            self._pace = Pace(self.total, done)
        shown = f"{format_seconds(round(left))} left" if left is not None else ""
        self._progress.update(
            self._id, completed=done, count=count, left=shown, metric=self.metric
        )

    def follow(self, progress: "TrialProgress", objective: str) -> None:
        """Draw a training's progress and its latest metric, evaluations first."""
        if progress.evaluated or not self.has_metric:
            self.metric = live_metric(progress.metrics, objective)
            self.has_metric = progress.evaluated
        self.move(progress.fraction, f"{progress.fraction:.0%}")

    def end(self) -> None:
        """Take the bar away."""
        if self._id is not None:
            self._progress.remove_task(self._id)
        self._id = None


def make_progress(console: Console) -> Progress:
    """Lines of title, bar, count, time left and metric that fit the console."""

    def text(field: str, ratio: int | None = None) -> TextColumn:
        overflow = Column(ratio=ratio, no_wrap=True, overflow="ellipsis")
        return TextColumn(field, markup=False, table_column=overflow)

    return Progress(
        text("{task.description}", ratio=1),
        BarColumn(bar_width=14),
        text("{task.fields[count]}"),
        text("{task.fields[left]}"),
        text("{task.fields[metric]}"),
        console=console,
        expand=True,
        transient=True,
    )


def live_metric(metrics: Mapping[str, float], objective: str) -> str:
    """The objective if it is among the metrics, or the first of them."""
    name = objective if objective in metrics else next(iter(metrics), "")
    return plain(f"{name.replace('_', ' ')} {format_number(metrics[name])}")
