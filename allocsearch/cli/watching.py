"""Runs a study under the eyes of a user: progress, and signals."""

from collections.abc import Iterator
from contextlib import contextmanager

from allocsearch.cli.bars import Bars
from allocsearch.cli.lines import Lines, Notes
from allocsearch.cli.printing import stderr
from allocsearch.cli.stopping import Stopper
from allocsearch.driver import run
from allocsearch.study import Study


def run_watched(study: Study, quiet: bool) -> int | None:
    """Run a study to its end, or until a signal.

    Args:
        study: what to run.
        quiet: whether to leave out progress.

    Returns:
        None at the end, or the exit code of an interruption.
    """
    with watching(quiet) as observer, Stopper(observer.note) as stopper:
        run(study, observer=observer, should_stop=stopper)
    return stopper.exit_code if observer.stopped else None


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
