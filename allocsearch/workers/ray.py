"""Trains on a Ray cluster: an actor for each trial at a time, on whatever node."""

import importlib
import json
import signal
import socket
import time
from dataclasses import asdict, dataclass, replace
from queue import Empty, SimpleQueue
from threading import Thread, current_thread, main_thread
from typing import Any

from allocsearch.attempt import Job, blank_result, candidate_of
from allocsearch.config import ExecutionConfig
from allocsearch.errors import AllocsearchError, ConfigError, StudyError
from allocsearch.results import TrialResult
from allocsearch.study import Study
from allocsearch.trial import Progress
from allocsearch.workers.base import Control, Ended, Listener, Word
from allocsearch.workers.serving import Message, Server, describe_study

_MOST_CRASHES = 2
_CONNECT_SECONDS = 10.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_NODE_LOST = ("node has died", "node died", "node was", "node failure")


class RemoteWorker:
    """What runs on a node: trains one job at a time, and can be told something."""

    def __init__(self, description: str):
        """Load the study.

        Args:
            description: what `describe_study` gave, as JSON.
        """
        self._messages: SimpleQueue[Message] = SimpleQueue()
        self._control = Control()
        self._server: Server | None = None
        values = json.loads(description)
        self._valid_seconds = values["valid_seconds"]
        try:
            self._server = Server(values)
        except AllocsearchError as error:
            self._messages.put({"event": "error", "text": str(error)})

    def train(self, job: str) -> None:
        """Begin to train a job, given as JSON; what happens is a message."""
        self._control = Control(self._valid_seconds)
        if self._server is not None:
            args = (Job(**json.loads(job)), self._control, self._messages.put)
            Thread(target=self._server.train, args=args, daemon=True).start()

    def tell(self, word: Word) -> None:
        """Tell the job something."""
        self._control.tell(word)

    def messages(self, seconds: float) -> str:
        """What happened since the last time, as JSON; waits for something a while."""
        found = []
        try:
            found.append(self._messages.get(timeout=seconds))
            while True:
                found.append(self._messages.get_nowait())
        except Empty:
            return json.dumps(found)


@dataclass
class _Place:
    """One of as many actors as trials may run at a time."""

    actor: Any = None
    job: Job | None = None
    asked: Any = None
    last: Progress | None = None
    n_crashes: int = 0
    stopping: bool = False


class Ray:
    """Actors that Ray puts where there are the cores and GPUs that a trial needs.

    Every node must see the study's folder under the same path and have the same
    packages installed. Where a node is lost, its trials go on elsewhere from their
    checkpoints; where only the process of a trial ends, twice, that trial has failed.
    """

    def __init__(self, study: Study, listener: Listener, execution: ExecutionConfig):
        """Connect to the cluster that the config names, or start one here.

        Raises:
            ConfigError: Ray is not installed.
            StudyError: there is no cluster at that address.
        """
        try:
            self._ray = importlib.import_module("ray")
        except ImportError as error:
            raise ConfigError(
                "the ray executor needs Ray: pip install 'allocsearch[ray]'"
            ) from error
        self._study, self._listener = study, listener
        self._cells = {cell.name: cell for cell in study.cells}
        self._places = [_Place() for _ in range(execution.n_workers)]
        self._description = json.dumps(describe_study(study))
        self._connect(execution.address)
        self._actor_class = self._ray.remote(
            num_cpus=execution.cpus_per_trial or 1,
            num_gpus=execution.gpus_per_trial or 0,
            max_restarts=0,
            max_concurrency=2,
        )(RemoteWorker)

    def n_free(self) -> int:
        """See `Executor`."""
        return sum(place.job is None for place in self._places)

    def submit(self, job: Job) -> None:
        """See `Executor`."""
        free = [place for place in self._places if place.job is None]
        place = next((p for p in free if p.actor is not None), free[0])
        place.job, place.last, place.n_crashes = job, None, 0
        place.stopping = False
        self._start(place, job)

    def wait(self, seconds: float) -> list[Ended]:
        """See `Executor`."""
        busy = [place for place in self._places if place.job is not None]
        if not busy:
            return []
        for place in self._places:
            if place.job is None and place.actor is not None:
                # Another trial may be waiting for what it occupies.
                self._ray.kill(place.actor)
                place.actor = None
        asked = [place.asked for place in busy]
        ready, _ = self._ray.wait(asked, timeout=seconds)
        ended = []
        for place in busy:
            if place.asked in ready:
                ended += self._hear(place)
        return ended

    def tell(self, job: Job, word: Word) -> None:
        """See `Executor`."""
        for place in self._places:
            if place.job == job and place.actor is not None:
                place.stopping |= word in ("stop", "drop")
                place.actor.tell.remote(word)

    def close(self) -> None:
        """See `Executor`."""
        for place in self._places:
            if place.actor is not None and self._ray.is_initialized():
                self._ray.kill(place.actor)
            place.actor = place.job = None
        if self._connected_here and self._ray.is_initialized():
            self._ray.shutdown()

    def _connect(self, address: str | None) -> None:
        self._connected_here = not self._ray.is_initialized()
        if not self._connected_here:
            return
        _refuse_silence(address)
        # Ray's own handlers would end this process before a checkpoint.
        handlers = {number: signal.getsignal(number) for number in _SIGNALS}
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
        if address is not None:
            options["address"] = address
        else:
            options["include_dashboard"] = False
        try:
            self._ray.init(**options)
        except (ConnectionError, ValueError, RuntimeError) as error:
            text = " ".join(str(error).split())[:200]
            raise StudyError(
                f"the Ray cluster at {address or 'this machine'} cannot be used: {text}"
            ) from error
        finally:
            if current_thread() is main_thread():
                for number, handler in handlers.items():
                    signal.signal(number, handler)

    def _start(self, place: _Place, job: Job) -> None:
        if place.actor is None:
            place.actor = self._actor_class.remote(self._description)
        place.actor.train.remote(json.dumps(asdict(job)))
        self._ask(place)

    def _ask(self, place: _Place) -> None:
        place.asked = place.actor.messages.remote(1.0)

    def _hear(self, place: _Place) -> list[Ended]:
        try:
            messages = json.loads(self._ray.get(place.asked))
        except self._ray.exceptions.RayError as error:
            return self._bury(place, error)
        for message in messages:
            if ended := self._pass_on(place, message):
                return [ended]
        self._ask(place)
        return []

    def _pass_on(self, place: _Place, message: Message) -> Ended | None:
        kind, job = message["event"], place.job
        assert job is not None
        if kind == "error":
            raise StudyError(message["text"])
        if kind == "note":
            self._listener.note(message["text"])
            return None
        if kind == "progress":
            fields = {k: v for k, v in message.items() if k != "event"}
            place.last = Progress(**fields)
            self._listener.progressed(job, place.last)
            return None
        place.job = None
        if kind == "finished":
            return Ended(job, kind, TrialResult.from_dict(message["result"]))
        return Ended(job, kind)

    def _bury(self, place: _Place, error: Exception) -> list[Ended]:
        """Go on after the loss of an actor or of its node."""
        job, place.actor = place.job, None
        assert job is not None
        if place.stopping:
            place.job = None
            return [Ended(job, "stopped")]
        text = " ".join(str(error).split())
        place.n_crashes += not any(sign in text for sign in _NODE_LOST)
        if place.n_crashes >= _MOST_CRASHES:
            place.job = None
            return [Ended(job, "finished", self._failed(place, job, text))]
        self._listener.note(
            f"{job.cell} #{job.number}: its process on the cluster was lost; it goes "
            f"on from its last checkpoint (Ray: {text[:120]})"
        )
        time.sleep(0.5)
        self._start(place, job)
        return []

    def _failed(self, place: _Place, job: Job, text: str) -> TrialResult:
        cell = self._cells[job.cell]
        candidate = candidate_of(self._study, cell, job)
        steps = place.last.steps if place.last else 0
        reason = (
            f"{candidate.allocation.label}, seeds {list(candidate.seeds)}: it ended "
            f"its process twice, the second time after {steps} "
            f"{cell.setting.task.unit}: {text[:300]}"
        )
        blank = blank_result(self._study, cell, job)
        return replace(blank, state="failed", reason=reason)


def _refuse_silence(address: str | None) -> None:
    """Refuse an address where nobody answers; Ray itself tries it for many minutes."""
    host, _, port = (address or "").rpartition(":")
    if not port.isdecimal() or "/" in host:
        return
    try:
        socket.create_connection((host, int(port)), _CONNECT_SECONDS).close()
    except OSError as error:
        raise StudyError(
            f"the Ray cluster at {address} cannot be reached: {error.strerror or error}"
        ) from error
