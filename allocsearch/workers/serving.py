"""Training jobs away from the driver: what a worker process and a Ray actor share."""

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from allocsearch.attempt import Job, attempt
from allocsearch.config import StudyConfig
from allocsearch.errors import AllocsearchError
from allocsearch.parsing import parse
from allocsearch.study import Study
from allocsearch.trial import Dropped, Interrupted
from allocsearch.workers.base import Control, valid_seconds

Message = dict[str, Any]
Send = Callable[[Message], None]


def describe_study(study: Study) -> Message:
    """What `Server` needs to know of a study, JSON-ready.

    The URL of its database, which may have a password in it, is left out.
    """
    config = study.config.given()
    output = {k: v for k, v in config.get("output", {}).items() if k != "storage"}
    directory = str(study.directory.resolve())
    return {
        "directory": directory,
        "config": {**config, "output": output},
        "valid_seconds": valid_seconds(study),
    }


class Server:
    """A study as a worker sees it: its folder and its cells, but not its search."""

    def __init__(self, description: Mapping[str, Any]):
        """Load the study's task and data.

        Args:
            description: what `describe_study` gave.

        Raises:
            AllocsearchError: the task or its data are not there.
        """
        config = parse(StudyConfig, description["config"])
        self._study = Study(Path(description["directory"]), config)
        self._cells = {cell.name: cell for cell in self._study.cells}

    def train(self, job: Job, control: Control, send: Send) -> None:
        """Train a job and send what happens; the last message says how it ended.

        Messages have an "event": "progress" with its fields; "note" with a "text";
        "finished" with a "result"; "stopped"; "dropped"; "error" with a "text" where
        it is not the trial's fault.
        """
        try:
            result = attempt(
                self._study,
                self._cells[job.cell],
                job,
                should_stop=control,
                on_progress=lambda p: send({"event": "progress", **asdict(p)}),
                note=lambda text: send({"event": "note", "text": text}),
            )
        except Dropped:
            send({"event": "dropped"})
        except Interrupted:
            send({"event": "stopped"})
        except AllocsearchError as error:
            send({"event": "error", "text": str(error)})
        else:
            send({"event": "finished", "result": result.to_dict()})


class Inbox:
    """What a worker process was told and has not done yet.

    Attributes:
        jobs: each with the control that later words about it go to.
    """

    def __init__(self, lines: Iterable[str], valid_seconds: float | None):
        """Lines of JSON, of which nothing is read yet; seconds as for `Control`."""
        self._lines, self._valid_seconds = lines, valid_seconds
        self.jobs: SimpleQueue[tuple[Job, Control]] = SimpleQueue()

    def read(self) -> None:
        """Read to the end, which is the driver's; then end this process at once."""
        control = Control()
        for line in self._lines:
            message = json.loads(line)
            if "job" in message:
                control = Control(self._valid_seconds)
                self.jobs.put((Job(**message["job"]), control))
            else:
                control.tell(message["tell"])
        os._exit(0)
