"""What a study trains next: proposals, promotions, races, and fresh seeds for winners.

Everything is decided from what the database holds, so that a study which was stopped
goes on as if it had not been.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from allocsearch.analysis.best import best_by_arm
from allocsearch.analysis.candidates import has_score, ranking
from allocsearch.analysis.contenders import contenders
from allocsearch.attempt import Job
from allocsearch.plan import AXES, CONFIRMATION, Cell
from allocsearch.results import TrialResult
from allocsearch.search import (
    EnoughTrials,
    LateResult,
    SearchStudy,
    SpaceExhausted,
    TrialRecord,
)
from allocsearch.search.rungs import Climber
from allocsearch.search.trial_records import RUNGS, UNTIL
from allocsearch.study import group_key, result_of, results_of


@dataclass
class CellSchedule:
    """The jobs of one cell.

    Attributes:
        cell: what is searched.
        search: its trials.
        smaller: the cell of the next smaller budget, which gives a warm start.
        n_begun: trials that were proposed.
        exhausted: whether no point is left to propose.
        notes: sentences for the user that were not said yet.
    """

    cell: Cell
    search: SearchStudy
    smaller: "CellSchedule | None" = None
    n_begun: int = 0
    exhausted: bool = False
    notes: list[str] = field(default_factory=list)

    def left_running(self) -> list[Job]:
        """Jobs that a driver began and did not end; also counts what was begun."""
        records = self._records()
        self.n_begun = len(records)
        return [
            Job(self.cell.name, r.number, dict(r.point), self._until(r))
            for r in records
            if r.state == "running" and not self._waits(r)
        ]

    def adopted(self, number: int) -> Job | None:
        """A job that another driver left; None where it runs no more or is paused."""
        if self.search.adopt(number) is None:
            return None
        return next((job for job in self.left_running() if job.number == number), None)

    @property
    def proposes(self) -> bool:
        """Whether trials are still to be proposed."""
        return self.n_begun < self.cell.n_trials and not self.exhausted

    @property
    def lacks_trials(self) -> bool:
        """Whether trials are still to be proposed or to end."""
        running = any(record.state == "running" for record in self._records())
        return self.proposes or running

    def next(self) -> Job | None:
        """The next job of the search; None where there is none for now."""
        rungs = self.cell.rungs
        if rungs is None:
            return self._proposal() if self.proposes else None
        records = self._records()
        climbers = [self._climber(record) for record in records if record.point]
        points = {record.number: dict(record.point) for record in records}
        promoted = rungs.promotion(climbers)
        if promoted is not None:
            rung = rungs.after(promoted.number, promoted.until)
            return self._sent(promoted.number, points, rung)
        if self.proposes and (job := self._proposal()) is not None:
            return job
        owed = rungs.owed(climbers)
        return None if owed is None else self._sent(owed.number, points, 1.0)

    def prune(self) -> list[TrialResult]:
        """End the trials that wait at a rung for good, once nothing else is to come."""
        if self.cell.rungs is None:
            return []
        ended = []
        for record in self._records():
            if not self._waits(record):
                continue
            fraction = record.attributes[RUNGS][-1][0]
            reason = (
                f"stopped at {fraction:.0%} of the horizon, where others did better"
            )
            with suppress(LateResult):  # another process was quicker
                self.search.prune(record.number, reason)
                ended.append(record.number)
        done = {r.number: r for r in self._records()}
        results = (result_of(done[number]) for number in ended)
        return [result for result in results if result is not None]

    def _proposal(self) -> Job | None:
        try:
            proposal = self.search.ask(self._wanted(), most=self.cell.n_trials)
        except EnoughTrials:  # other processes were quicker
            self.n_begun = self.cell.n_trials
            return None
        except SpaceExhausted:
            self.exhausted = True
            self.notes.append(
                f"{self.cell.name}: all {len(self.cell.points)} feasible points have "
                "been tried; the search of this arm ends here"
            )
            return None
        self.n_begun += 1
        until = self._first(proposal.number)
        if until < 1:
            self.search.send(proposal.number, until)
        return Job(self.cell.name, proposal.number, proposal.values, until)

    def _wanted(self) -> Mapping[str, object] | None:
        """The next of the smaller budget's best allocations; None where none is."""
        if self.smaller is None:
            return None
        best = self.smaller.best(self.cell.setting.search.warm_start)
        if self.n_begun >= len(best):
            return None
        winner = best[self.n_begun]
        own = {name: getattr(winner.allocation, name) for name in AXES}
        known = {**winner.settings, **own}
        return {name: known[name] for name in self.cell.points.names}

    def best(self, n: int) -> list[TrialResult]:
        """The n best complete trials, by the seeds of the search alone."""
        results = [result_of(record) for record in self._records()]
        scored = [r for r in results if r is not None and has_score(r)]
        return sorted(scored, key=ranking)[:n]

    def race(self) -> list[Job]:
        """Further groups of seeds for trials that may yet be the best, those of now."""
        for group in range(1, self.cell.setting.search.race_groups + 1):
            rivals = contenders(results_of(self.search, most_groups=group - 1))
            if len(rivals) < 2:
                return []
            lacking = self._lacking(rivals, group)
            if lacking:
                return lacking
        return []

    def confirmation(self) -> list[Job]:
        """Fresh seeds for the winner, which then did not choose it."""
        if not self.cell.n_confirm_seeds:
            return []
        best = best_by_arm(results_of(self.search))
        return self._lacking([*best.values()], CONFIRMATION)

    def _lacking(self, trials: Sequence[TrialResult], group: int) -> list[Job]:
        stored = self.search.annotations()
        lacking = [t for t in trials if group_key(t.number, group) not in stored]
        points = {record.number: record.point for record in self._records()}
        return [
            Job(self.cell.name, t.number, dict(points[t.number]), group=group)
            for t in lacking
        ]

    def store_group(self, job: Job, result: TrialResult) -> None:
        """Keep what came of a race or a confirmation."""
        stored = result.to_dict()
        if result.state == "failed":
            # Runs without metrics disqualify the trial, as one diverged seed does.
            stored["seeds"] = [{"seed": -1, "metrics": {}}]
        kept = {name: stored[name] for name in ("seeds", "reason", "seconds")}
        self.search.annotate(group_key(job.number, job.group), kept)

    def _sent(self, number: int, points: Mapping[int, dict], until: float) -> Job:
        self.search.send(number, until)
        return Job(self.cell.name, number, points[number], until)

    def _records(self) -> list[TrialRecord]:
        return [record for record in self.search.records() if not record.refused]

    def _climber(self, record: TrialRecord) -> Climber:
        scores = {f: tuple(v) for f, v in record.attributes.get(RUNGS, [])}
        state = "paused" if self._waits(record) else record.state
        if state == "pruned":
            state = "failed"
        return Climber(
            record.number, record.point["depth"], scores, self._until(record), state
        )

    def _until(self, record: TrialRecord) -> float:
        return record.attributes.get(UNTIL, self._first(record.number))

    def _waits(self, record: TrialRecord) -> bool:
        """Whether a trial has paused where it was last sent."""
        reached = record.attributes.get(RUNGS)
        if record.state != "running" or not reached:
            return False
        return reached[-1][0] >= self._until(record)

    def _first(self, number: int) -> float:
        return 1.0 if self.cell.rungs is None else self.cell.rungs.ladder(number)[0]
