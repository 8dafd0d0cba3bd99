"""What a study tells of itself while it runs."""

from allocsearch.candidate import Candidate
from allocsearch.plan import Cell
from allocsearch.results import TrialResult
from allocsearch.study import Study
from allocsearch.trial import Progress


class Observer:
    """Told what a study does; the default says nothing."""

    def study_started(self, study: Study) -> None:
        """Trials are about to run; cells and earlier trials can be read."""

    def study_stopped(self, study: Study) -> None:
        """`should_stop` said so: a checkpoint is written and the study can go on."""

    def trial_started(self, cell: Cell, number: int, candidate: Candidate) -> None:
        """A trial begins, or is taken up again."""

    def trial_progressed(self, cell: Cell, number: int, progress: Progress) -> None:
        """A trial that began is this far."""

    def trial_paused(self, result: TrialResult) -> None:
        """A trial waits at a rung; it may be taken up again."""

    def trial_finished(self, result: TrialResult) -> None:
        """A trial is complete, was pruned, or has failed."""

    def trial_left(self, cell: Cell, number: int) -> None:
        """A trial is no longer trained here, and not at its end."""

    def note(self, text: str) -> None:
        """Something the user should know, in a sentence."""
