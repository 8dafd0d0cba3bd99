"""What a study says without bars: notes, and a line per trial for logs and pipes."""

from rich.console import Console
from rich.text import Text

from allocsearch.analysis.formats import (
    arm_label,
    format_score,
    format_seconds,
    plain,
)
from allocsearch.analysis.statistics import standard_error
from allocsearch.cli.pace import Pace
from allocsearch.observer import Observer
from allocsearch.results import TrialResult
from allocsearch.study import Study


class Notes(Observer):
    """Notes only, for --quiet; the others add progress.

    Attributes:
        stopped: whether the study ended before its end, on request.
    """

    def __init__(self, console: Console):
        """An observer that prints to `console`."""
        self.console = console
        self.stopped = False

    def note(self, text: str) -> None:
        """See `Observer.note`."""
        self.console.print(Text(plain(text)), soft_wrap=True)

    def study_stopped(self, study: Study) -> None:
        """See `Observer.study_stopped`."""
        self.stopped = True
        self.note(f"stopped; go on with: {resume_command(study)}")


class Lines(Notes):
    """Notes, and a line per trial."""

    def __init__(self, console: Console):
        """An observer that prints to `console`."""
        super().__init__(console)
        self._done, self._pace = 0, Pace(0, 0)

    def study_started(self, study: Study) -> None:
        """See `Observer.study_started`."""
        total, self._done = progress_of(study)
        self._pace = Pace(total, self._done)
        self.note(f"study {study.name}: {total} trials, {self._done} done before")

    def trial_paused(self, result: TrialResult) -> None:
        """See `Observer.trial_paused`."""
        self.note(outcome_line(result))

    def trial_finished(self, result: TrialResult) -> None:
        """See `Observer.trial_finished`."""
        self._done += 1
        left = self._pace.seconds_left(self._done)
        rest = f"; about {format_seconds(round(left))} left" if left else ""
        self.note(f"{self._done}/{self._pace.total}  {outcome_line(result)}{rest}")


def progress_of(study: Study) -> tuple[int, int]:
    """How many trials a study has in all, and how many have ended."""
    ended = sum(trial.state != "running" for trial in study.trials())
    return sum(cell.n_trials for cell in study.cells), ended


def outcome_line(result: TrialResult) -> str:
    """How a trial ended: ``"recurrent gru L1 E2 d8: accuracy 0.91 in 4 s"``."""
    head = f"{arm_label(result.arm)} {result.allocation.label}"
    if result.state in ("failed", "pruned"):
        return f"{head}: {result.state}, {result.reason}"
    name = result.objective.name
    scores = [seed.metrics[name] for seed in result.seeds if name in seed.metrics]
    error = standard_error(scores) if len(scores) > 1 else None
    score = f"{name.replace('_', ' ')} {format_score(result.score, error)}"
    paused = f" at {result.fraction:.0%}" if result.fraction < 1 else ""
    return f"{head}: {score}{paused} in {format_seconds(result.seconds)}"


def resume_command(study: Study) -> str:
    """What to type to go on with a study."""
    from allocsearch.cli.options import DEFAULT_DIRECTORY

    parent = study.directory.parent
    where = "" if parent == DEFAULT_DIRECTORY else f" --directory {parent}"
    return f"allocsearch resume {study.name}{where}"
