"""Trials made by hand, without training anything."""

import math
from collections.abc import Callable, Sequence

import pytest

from allocsearch.allocation import Allocation
from allocsearch.results import Objective, SeedResult, TrialResult
from allocsearch.work import Audit, Work

RETURN = Objective("return", "return", "maximize")
LOSS = Objective("loss", "nats/token", "minimize")


def make_trial(
    scores: float | Sequence[float] = (1.0, 1.2, 1.1),
    depth: int = 4,
    *,
    number: int = 0,
    recurrent: bool = True,
    objective: Objective = RETURN,
    state: str = "complete",
    core: int | None = 2_000_000,
    baseline: float | None = None,
    **fields,
) -> TrialResult:
    """A trial with these scores, one per seed; `core=None` leaves the audit out."""
    allocation = fields.pop("allocation", None) or Allocation(
        "conv_lstm", recurrent, depth, 2, 12
    )
    scores = [scores] if isinstance(scores, int | float) else list(scores)
    seeds = [
        SeedResult(
            seed=i,
            metrics={objective.name: s, "solved_fraction": 0.1 * i},
            curve=[
                {
                    "steps": 1000 * k,
                    objective.name: s * k / 3 if math.isfinite(s) else s,
                }
                for k in range(1, 4)
            ],
            baseline={} if baseline is None else {objective.name: baseline},
        )
        for i, s in enumerate(scores)
    ]
    audit = core and Audit(
        work=Work(core, 10_000, 20_000),
        live_core=core,
        training=3 * core,
        elementwise=5_000,
        parameters=core // 100,
        core_parameters=core // 120,
        state_bytes=2_400,
        context_bytes=0,
    )
    values = {
        "study": "demo",
        "task": "sokoban",
        "budget": "tiny",
        "budget_flops": 2_073_600,
        "horizon": 3000,
        "unit": "environment steps",
        "settings": {"learning_rate": 3e-4},
        "seconds": 12.5,
        "measures": {"step_seconds": 1e-4, "latency_seconds": 1e-3},
        "started": "2025-01-01T00:00:00+00:00",
        "finished": "2025-01-01T00:00:12+00:00",
    }
    return TrialResult(
        number=number,
        state=state,
        allocation=allocation,
        objectives=(objective,),
        seeds=tuple(seeds),
        audit=audit or None,
        **(values | fields),
    )


@pytest.fixture(scope="session")
def trial() -> Callable[..., TrialResult]:
    return make_trial


@pytest.fixture(scope="session")
def loss() -> Objective:
    return LOSS


@pytest.fixture(scope="session")
def search(trial) -> list[TrialResult]:
    """Both arms at depths 1 to 8, with a failed, a running and a diverged trial."""
    results = []
    for recurrent, gain in ((True, 0.5), (False, 0.2)):
        for i, depth in enumerate((1, 2, 4, 8, 2)):
            scores = [depth * gain - (i == 4) + 0.1 * k for k in range(3)]
            aggregation = "mean" if i == 1 else "l2_softmax_gated"
            shape = Allocation("conv_lstm", recurrent, depth, 4, 12, 1, aggregation)
            results.append(
                trial(scores, number=i, allocation=shape, baseline=-1.0, core=10**6 + i)
            )
        shape = Allocation("conv_lstm", recurrent, 8, 4, 12)
        diverged = (99.0, math.nan, 99.0)
        results += [
            trial((), number=5, allocation=shape, state="failed", reason="[b]OOM[/b]"),
            trial((), number=6, allocation=shape, state="running", core=None),
            trial(diverged, number=7, allocation=shape),
        ]
    return results
