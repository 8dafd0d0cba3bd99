import itertools
from collections import Counter
from pathlib import Path

import pytest

from allocsearch import registry
from allocsearch.allocation import Allocation
from allocsearch.config import load_config
from allocsearch.driver import run
from allocsearch.errors import BudgetError, ConfigError
from allocsearch.plan import plan
from allocsearch.study import load_study
from allocsearch.tasks.tabular import Tabular
from allocsearch.tasks.tabular.config import TabularConfig
from allocsearch.testing import check_task


@pytest.fixture(autouse=True)
def _tabular():
    known = "tabular" in registry.names("task")
    if not known:
        registry.register("task", "tabular", Tabular)
    yield
    if not known:
        registry.unregister("task", "tabular")


def score(depth: int, n_experts: int) -> float:
    return 1 - abs(depth - 4) / 8 - abs(n_experts - 2) / 16


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """12 allocations of each arm, three evaluations of two runs each."""
    lines = ["recurrent,depth,n_experts,width,flops,seed,steps,score,loss,test_score"]
    for arm, depth, n in itertools.product((True, False), (1, 2, 4, 8), (1, 2, 4)):
        for seed, steps in itertools.product((0, 1), (10, 20, 30)):
            value = score(depth, n) * steps / 30 + 0.01 * seed - 0.05 * (not arm)
            lines.append(
                f"{arm},{depth},{n},{64 // (depth * n)},{100 * depth},{seed},{steps},"
                f"{value},{1 - value},{value - 0.5}"
            )
    file = tmp_path / "t.csv"
    file.write_text("\n".join(lines) + "\n")
    return file


def config_of(path: Path, **changes) -> dict:
    base = {
        "name": "s",
        "task": {"name": "tabular", "data": str(path)},
        "output": {"directory": str(path.parent / "studies")},
        "search": {"n_trials": 24},
    }
    return {**base, **changes}


def test_a_study_replays_the_table(path: Path):
    study = run(config_of(path, training={"n_seeds": 2}))
    trials = study.trials()
    assert Counter(t.arm for t in trials) == {"recurrent": 12, "nonrecurrent": 12}
    assert len({t.allocation for t in trials}) == 24
    for trial in trials:
        assert trial.state == "complete"
        assert trial.audit is None
        assert trial.horizon == 30
        shape = score(trial.allocation.depth, trial.allocation.n_experts)
        lost = 0.05 * (trial.arm == "nonrecurrent")
        assert trial.score == pytest.approx(shape + 0.005 - lost)
        steps = [point["steps"] for point in trial.seeds[0].curve]
        assert steps == [10, 20, 30]
        assert sorted(s.metrics["score"] - shape + lost for s in trial.seeds) == [
            pytest.approx(0, abs=1e-9),
            pytest.approx(0.01),
        ]
    best = max(trials, key=lambda t: t.score).allocation
    assert best == Allocation("table", True, 4, 2, 8)
    finalists = study.finalists()
    tested = finalists["table", "table", "recurrent"]
    assert tested["score"] == pytest.approx(best_test := 1.005 - 0.5), best_test
    assert load_study("s", path.parent / "studies").pareto()


def test_shorter_training_scores_less(path: Path):
    study = run(config_of(path, training={"horizon": 15}, search={"n_trials": 2}))
    trial = study.trials()[0]
    assert [point["steps"] for point in trial.seeds[0].curve] == [10, 20]


def test_a_budget_binds_the_cost(path: Path):
    for cell in plan(load_config(base=config_of(path, budgets=["200"]))):
        assert {a.depth for a in cell.allocations} == {1, 2}
        assert all(cell.setting.work(a).core <= 200 for a in cell.allocations)
    words = (
        r"0 of 12 table recurrent allocations fit budget '50' .* nearest is table L1"
    )
    with pytest.raises(BudgetError, match=words):
        plan(load_config(base=config_of(path, budgets=["50"])))


def test_objectives_come_from_the_config(path: Path):
    task = {"name": "tabular", "data": str(path), "objectives": "loss:minimize:nats"}
    study = run(config_of(path, task=task, search={"n_trials": 4}))
    (objective,) = study.trials()[0].objectives
    assert objective.name == "loss"
    assert objective.unit == "nats"
    assert objective.direction == "minimize"
    for wrong, words in (("speed", "no metric 'speed'; it has: score, loss"),):
        with pytest.raises(ConfigError, match=words):
            Tabular(TabularConfig(data=str(path), objectives=wrong))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="--data"):
        Tabular(TabularConfig())


def test_a_table_of_one_arm_needs_no_flag(tmp_path: Path):
    file = tmp_path / "t.csv"
    file.write_text("depth,n_experts,width,score\n1,1,8,0.5\n2,1,6,0.75\n2,1,4,0.7\n")
    (cell,) = plan(load_config(base=config_of(file)))
    assert cell.arm == "recurrent"
    # Two widths of one shape: width is a coordinate of its own then.
    assert cell.points.names[-1] == "width"
    assert len(cell.points) == 3
    with pytest.raises(ConfigError, match="no expert is meant for the nonrecurrent"):
        plan(load_config(base=config_of(file, arms=["nonrecurrent"])))


def test_pieces_equal_the_whole_and_runs_follow_the_seed(path: Path):
    task = Tabular(TabularConfig(data=str(path)))
    allocation = Allocation("table", True, 4, 2, 8)
    (cell, *_) = plan(load_config(base=config_of(path)))
    whole = task.init(allocation, cell.setting.training, (5, 8, 9))
    pieces = whole
    whole, _ = task.train(whole, 2)
    for _ in range(2):
        pieces, metrics = task.train(pieces, 1)
    assert metrics == [{}, {}, {}]
    assert task.evaluate(whole) == task.evaluate(pieces)
    noise = [m["score"] - 2 / 3 for m in task.evaluate(whole)]
    assert noise == pytest.approx([0.01, 0.0, 0.01])
    with pytest.raises(ConfigError, match="builds no network"):
        task.encoder(8, key=None)  # type: ignore[arg-type]


def test_the_laws_of_tasks_hold(path: Path):
    task = Tabular(TabularConfig(data=str(path)))
    (cell, *_) = plan(load_config(base=config_of(path)))
    check_task(task, cell.allocations[0], cell.setting.training)


def test_samplers_and_their_options_are_set_in_the_config(path: Path):
    search = {"n_trials": 6, "sampler": "grid"}
    study = run(config_of(path, search=search))
    depths = [t.allocation.depth for t in study.trials() if t.arm == "recurrent"]
    assert depths == [1, 1, 1]
    search = {"n_trials": 6, "sampler": "nsga2", "sampler_options": {"populace": 3}}
    with pytest.raises(LookupError, match="did you mean 'population'"):
        plan(load_config(base=config_of(path, search=search)))


@pytest.mark.parametrize("sampler", ["auto", "gp", "nsga2", "tpe"])
def test_two_parts_of_a_study_are_one(path: Path, sampler: str):
    """As with `--n-trials` raised for a second run."""
    option = {"nsga2": "population"}.get(sampler, "n_startup")
    found = []
    for name, parts in (("whole", (18,)), ("parts", (8, 18))):
        for n_trials in parts:
            search = {
                "n_trials": n_trials,
                "sampler": sampler,
                "sampler_options": {option: 3},
            }
            study = run(config_of(path, name=name, search=search))
        found.append([(t.arm, t.number, t.allocation, t.score) for t in study.trials()])
    assert found[0] == found[1]
    assert len(found[0]) == 18
