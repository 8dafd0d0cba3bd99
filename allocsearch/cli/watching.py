"""Runs a study under the eyes of a user: progress, and signals."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from allocsearch.cli import exits
from allocsearch.cli.bars import Bars
from allocsearch.cli.lines import Lines, Notes
from allocsearch.cli.printing import stderr
from allocsearch.cli.stopping import Stopper
from allocsearch.driver import run
from allocsearch.study import Study


def run_watched(
    study: Study,
    quiet: bool,
    *,
    most_trials: int | None = None,
    seconds: float | None = None,
) -> int | None:
    """Run a study to its end, or until a signal.

    Args:
        study: what to run.
        quiet: whether to leave out progress.
        most_trials: stop after so many trials of this process.
        seconds: stop, at a checkpoint, after so long.

    Returns:
        None at the end, or the exit code of an interruption.
    """
    deadline = float("inf") if seconds is None else time.monotonic() + seconds
    with watching(quiet) as observer, Stopper(observer.note) as stopper:
        run(
            study,
            observer=observer,
            should_stop=lambda: stopper() or time.monotonic() > deadline,
            most_trials=most_trials,
            on_claims=lambda claims: stopper.at_last(claims.let_go_of_all),
        )
    if not observer.stopped:
        return None
    return stopper.exit_code if stopper() else exits.DONE


@contextmanager
def watching(quiet: bool) -> Iterator[Notes]:
    """An observer that suits stderr: bars in a terminal, lines elsewhere."""
    console = stderr()
    if quiet:
        yield Notes(console)
    elif console.is_terminal:
        bars = Bars(console)
        with bars.shown():
            yield bars
    else:
        yield Lines(console)
