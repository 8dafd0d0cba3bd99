import sqlite3
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import optuna
import pytest

from allocsearch.errors import ConfigError, StudyError
from allocsearch.search import SAMPLERS, Axis, Points, SearchStudy, list_studies
from allocsearch.search.samplers.random import RandomSampler


def open_study(storage: str, points: Points, **changes) -> SearchStudy:
    settings = {"directions": ("maximize",), "sampler": "random", "seed": 0}
    return SearchStudy.open(storage, "s", points, **{**settings, **changes})


def value(row: tuple[int, ...]) -> float:
    return float(sum(i * (j + 1) for j, i in enumerate(row)))


def test_a_trial_keeps_what_it_was_told(storage: str, points: Points):
    study = open_study(storage, points)
    proposal = study.ask()
    study.record(0, "checkpoint", {"step": 3})
    study.record(0, "checkpoint", {"step": 4})
    assert study.records()[0].state == "running"
    assert study.tell(0, [1.5], {"solved": 0.5}) == "complete"
    (record,) = SearchStudy.load(storage, "s").records()
    assert record.state == "complete"
    assert record.values == (1.5,)
    assert record.point == proposal.values
    assert record.attributes == {"checkpoint": {"step": 4}, "solved": 0.5}
    assert record.reason is None
    assert record.started is not None
    assert record.finished is not None
    assert record.started <= record.finished
    assert record.finished.tzinfo is UTC
    assert abs(record.finished - datetime.now(UTC)) < timedelta(minutes=1)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_is_a_failure_with_a_reason(storage, points, bad):
    study = open_study(storage, points, directions=("maximize", "minimize"))
    study.ask()
    assert study.tell(0, [1.0, bad], {"step": 7}) == "failed"
    (record,) = study.records()
    assert record.state == "failed"
    assert record.values is None
    assert record.reason == f"objective 2 of 2 is {bad}, not finite"
    assert record.attributes == {"step": 7}
    assert study.counts() == {
        "running": 0,
        "complete": 0,
        "pruned": 0,
        "failed": 1,
        "refused": 0,
    }


def test_only_a_running_trial_can_be_told(storage: str, points: Points):
    study = open_study(storage, points)
    study.ask()
    with pytest.raises(StudyError, match="2 values for 1 objectives"):
        study.tell(0, [1.0, 2.0])
    study.tell(0, [1.0])
    late = SearchStudy.load(storage, "s")
    for call in (
        lambda: late.tell(0, [2.0]),
        lambda: late.fail(0, "late"),
        lambda: late.record(0, "key", 1),
    ):
        with pytest.raises(StudyError, match="not running but complete"):
            call()
    with pytest.raises(StudyError, match="no trial 7"):
        study.tell(7, [1.0])
    assert study.records()[0].values == (1.0,)


OPTIONS = {
    "auto": {"n_startup": 3, "n_gp": 8},
    "gp": {"n_startup": 3},
    "nsga2": {"population": 4},
    "tpe": {"n_startup": 4},
}


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_straight_killed_and_split_runs_propose_the_same(folder, points, sampler):
    def begin(name: str) -> SearchStudy:
        url = f"sqlite:///{folder / name}.db"
        options = OPTIONS.get(sampler, {})
        return open_study(url, points, sampler=sampler, sampler_options=options)

    def go_on(study: SearchStudy, n_trials: int) -> list:
        rows = []
        todo = study.running()
        while len(study.records()) < n_trials or todo:
            proposal = todo.pop(0) if todo else study.ask()
            rows.append((proposal.number, proposal.row))
            study.tell(proposal.number, [value(proposal.row)])
        return rows

    straight = go_on(begin("straight"), 11)
    split = go_on(begin("split"), 5) + go_on(begin("split"), 11)
    killed = []
    for stop in (3, 8):
        study = begin("killed")
        killed += go_on(study, stop)
        lost = study.ask()
        study.close()
        assert [p.number for p in begin("killed").running()] == [lost.number]
        assert begin("killed").running() == [lost]
    killed += go_on(begin("killed"), 11)
    assert [number for number, _ in straight] == list(range(11))
    assert split == straight
    assert killed == straight


def test_parallel_running_trials_come_back_by_number(storage: str, points: Points):
    study = open_study(storage, points)
    asked = [study.ask() for _ in range(4)]
    study.tell(2, [0.0])
    again = SearchStudy.load(storage, "s").running()
    assert again == [asked[0], asked[1], asked[3]]


def test_changes_are_refused_and_nothing_is_written(storage: str, points: Points):
    study = open_study(storage, points)
    study.tell(study.ask().number, [1.0])
    before = SearchStudy.load(storage, "s").records()
    fewer = Points(points.axes, points.rows[1:])
    renamed = Points((*points.axes[:3], Axis("a", (0, 1))), fewer.rows)
    for changes, words in (
        ({"points": fewer}, "set of points"),
        ({"points": renamed}, "set of axes"),
        ({"directions": ("minimize",)}, "direction"),
        ({"directions": ("maximize", "minimize")}, "direction"),
        ({"seed": 1}, r"seed \(was 0, now 1\)"),
        ({"sampler": "grid"}, "sampler"),
    ):
        with pytest.raises(StudyError, match=f"{words}.*new study name"):
            open_study(storage, **{"points": points, **changes})
    assert SearchStudy.load(storage, "s").records() == before
    assert list_studies(storage) == ["s"]


def test_a_study_that_is_not_there(storage: str, points: Points):
    with pytest.raises(StudyError, match="no study database"):
        open_study(storage, points, create=False)
    open_study(storage, points)
    with pytest.raises(StudyError, match="no study 'other'; it has: s"):
        SearchStudy.load(storage, "other")
    with pytest.raises(ConfigError, match="minimize"):
        open_study(storage, points, directions=("up",))


def test_a_study_cut_off_at_its_birth_is_begun_again(storage: str, points: Points):
    optuna.create_study(study_name="s", storage=storage, direction="maximize")
    assert open_study(storage, points).ask().number == 0


def test_a_study_of_another_program_is_refused(storage: str, points: Points):
    foreign = optuna.create_study(study_name="s", storage=storage)
    foreign.ask({"x": optuna.distributions.FloatDistribution(0, 1)})
    with pytest.raises(StudyError, match="another program"):
        open_study(storage, points)


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"depth": 99, "n_experts": 0, "radius": 0, "aggregation": "mean"}, "not a"),
        ({"depth": 3, "n_experts": 2, "radius": 0, "aggregation": "mean"}, "not a"),
        ({"depth": 0, "n_experts": 0, "radius": 0, "aggregation": "max"}, "read"),
        ({"depth": "x", "n_experts": 0, "radius": 0, "aggregation": "mean"}, "read"),
    ],
)
def test_what_is_put_into_the_database_is_checked(storage, points, params, reason):
    study = open_study(storage, points)
    optuna.load_study(study_name="s", storage=storage).enqueue_trial(params)
    assert study.counts()["running"] == 0
    proposal = study.ask()
    assert proposal.number == 1
    assert proposal.row in points
    refused = study.records()[0]
    assert refused.refused
    assert refused.state == "failed"
    assert reason in (refused.reason or "")
    assert study.counts() == {
        "running": 1,
        "complete": 0,
        "pruned": 0,
        "failed": 0,
        "refused": 1,
    }


def test_enqueued_points_are_tried_next_and_once(storage: str, points: Points):
    study = open_study(storage, points)
    wanted = points.values(points.rows[7])
    study.enqueue(wanted)
    study.enqueue(wanted)
    assert study.ask().values == wanted
    assert study.ask().values != wanted
    assert study.records()[1].reason == "refused: its point was proposed before"
    with pytest.raises(ConfigError, match="not among the"):
        study.enqueue({**wanted, "depth": 3})


def test_an_edited_running_trial_is_refused(storage: str, points: Points):
    study = open_study(storage, points)
    study.ask()
    foreign = optuna.load_study(study_name="s", storage=storage)
    space = foreign.trials[0].distributions
    params = {"depth": 3, "n_experts": 2, "radius": 2, "aggregation": "mean"}
    state = optuna.trial.TrialState.RUNNING
    foreign.add_trial(
        optuna.trial.create_trial(state=state, params=params, distributions=space)
    )
    foreign.add_trial(
        optuna.trial.create_trial(value=9.0, params=params, distributions=space)
    )
    assert [p.number for p in study.running()] == [0]
    states = [record.state for record in study.records()]
    assert states == ["running", "failed", "failed"]


def test_a_half_made_running_trial_is_completed(storage: str, points: Points):
    study = open_study(storage, points)
    study.enqueue(points.values(points.rows[5]))
    foreign = optuna.load_study(study_name="s", storage=storage)
    foreign.ask()
    assert study.records()[0].point == {}
    (proposal,) = SearchStudy.load(storage, "s").running()
    assert proposal.row == points.rows[5]


def test_no_point_twice_when_processes_ask_at_once(storage, points, monkeypatch):
    first, second = open_study(storage, points), open_study(storage, points)
    propose = RandomSampler.propose
    between = []

    def interrupted(self, request):
        row = propose(self, request)
        if not between:
            between.append(None)
            between[0] = second.ask()
        return row

    monkeypatch.setattr(RandomSampler, "propose", interrupted)
    mine = first.ask()
    assert between[0].number == 0
    assert mine.number == 2
    assert mine.row != between[0].row
    assert "at the same time" in (first.records()[1].reason or "")
    assert first.counts() == {
        "running": 2,
        "complete": 0,
        "pruned": 0,
        "failed": 0,
        "refused": 1,
    }


def fill(path: Path, n_trials: int) -> None:
    """Copy trial 0 and all that belongs to it `n_trials` times, as plain SQL."""
    with sqlite3.connect(path) as database:
        numbers = [{"n": n + 1} for n in range(n_trials)]
        database.executemany(
            "INSERT INTO trials (trial_id, number, study_id, state, datetime_start, "
            "datetime_complete) SELECT trial_id + :n, :n, study_id, state, "
            "datetime_start, datetime_complete FROM trials WHERE number = 0",
            numbers,
        )
        for table, columns in (
            ("trial_params", "param_name, param_value, distribution_json"),
            ("trial_values", "objective, value, value_type"),
            ("trial_user_attributes", "key, value_json"),
        ):
            database.executemany(
                f"INSERT INTO {table} (trial_id, {columns}) SELECT trial_id + :n, "
                f"{columns} FROM {table} WHERE trial_id = 1",
                numbers,
            )
    database.close()


def test_two_thousand_trials_are_read_quickly(folder: Path, points: Points):
    path = folder / "study.db"
    study = open_study(f"sqlite:///{path}", points)
    study.tell(study.ask().number, [1.0], {f"key{i}": i for i in range(8)})
    study.close()
    fill(path, 2000)
    begun = time.process_time()
    records = SearchStudy.load(f"sqlite:///{path}", "s").records()
    assert time.process_time() - begun < 4
    assert len(records) == 2001
    assert records[2000].attributes == records[0].attributes
    assert records[2000].values == (1.0,)


def test_optuna_is_quiet_and_left_as_it_was(storage, points, capfd):
    level = optuna.logging.get_verbosity()
    study = open_study(storage, points)
    study.tell(study.ask().number, [1.0])
    assert optuna.logging.get_verbosity() == level
    assert capfd.readouterr() == ("", "")


def test_every_trial_says_that_it_is_feasible(storage: str, points: Points):
    """Both where optuna-dashboard looks and where Optuna itself does."""
    study = open_study(storage, points)
    study.tell(study.ask().number, [1.0])
    study.enqueue(points.values(points.rows[9]))
    study.tell(study.ask().number, [2.0])
    for trial in optuna.load_study(study_name="s", storage=storage).trials:
        assert trial.system_attrs["constraints"] == [0.0]
        assert trial.system_attrs["constraints:budget"] == 0.0
    again = open_study(storage, points)
    again.ask()
    assert again.running()
    trial = optuna.load_study(study_name="s", storage=storage).trials[2]
    assert all(v <= 0 for v in trial.system_attrs["constraints"])


@pytest.mark.parametrize("bad", [float("inf"), float("-inf")])
def test_infinity_of_another_program_is_never_best(storage, points, bad):
    study = open_study(storage, points, directions=("maximize",), sampler="tpe")
    study.tell(study.ask().number, [1.0])
    foreign = optuna.load_study(study_name="s", storage=storage)
    first = foreign.trials[0]
    foreign.add_trial(
        optuna.trial.create_trial(
            value=bad,
            params={**first.params, "depth": (first.params["depth"] + 1) % 2},
            distributions=first.distributions,
        )
    )
    record = study.records()[1]
    assert record.state == "failed"
    assert record.values is None
    assert record.reason == "its value is not finite"
    assert study.counts()["complete"] == 1
    study.ask()
