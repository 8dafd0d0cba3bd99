"""What a trial keeps of training, with a task whose metrics are known beforehand."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import pytest

from allocsearch.allocation import Allocation
from allocsearch.candidate import Candidate
from allocsearch.config import TrainingConfig
from allocsearch.parsing import Section
from allocsearch.results import Objective
from allocsearch.tasks.protocol import Task
from allocsearch.trial import Interrupted, train_candidate

ALLOCATION = Allocation("mlp", True, 1, 1, 4)
CANDIDATE = Candidate(
    ALLOCATION, TrainingConfig(horizon=60, n_evaluations=3), seeds=(0, 1)
)


class Counter(Task):
    """Chunk k earns k (k + 10 for the second seed); the score is ten times that."""

    name = "counter"
    Config = Section
    budgets: ClassVar = {}
    experts = ()
    objectives = (Objective("score", "points", "maximize"),)
    unit = "steps"
    final_window = 2
    positions = ()
    observation = jax.ShapeDtypeStruct((1,), jnp.float32)
    steps_per_chunk = 10

    def __init__(self, config=None):
        self.config = config

    def encoder(self, width, *, key): ...

    def head(self, width, *, key): ...

    def init(self, allocation, training, seeds):
        del allocation, training, seeds
        return jnp.zeros((), jnp.int32)

    def train(self, state, n_chunks):
        k = int(state) + n_chunks
        return state + n_chunks, [{"earned": float(k)}, {"earned": k + 10.0}]

    def evaluate(self, state, split="valid"):
        del split
        return [{"score": 10.0 * int(state)}] * 2

    def training_scores(self, means):
        return {"score": means["earned"]}

    def baseline(self, split="valid"):
        del split
        return {}

    def manifest(self):
        return {}


def test_training_is_averaged_between_evaluations():
    """Six chunks, evaluated after the 2nd, 4th and 6th: means 1.5, 3.5 and 5.5."""
    first, second = train_candidate(Counter(), CANDIDATE).seeds
    assert first.training_curve == [
        {"steps": 20.0, "score": 1.5},
        {"steps": 40.0, "score": 3.5},
        {"steps": 60.0, "score": 5.5},
    ]
    assert [point["score"] for point in second.training_curve] == [11.5, 13.5, 15.5]
    assert first.training == {"score": 4.5}  # of the last two, as the score
    assert first.metrics == {"score": 50.0}
    assert [point["steps"] for point in first.curve] == [20.0, 40.0, 60.0]


@pytest.mark.parametrize("stop_after", [1, 2, 3])
def test_an_interruption_changes_nothing_of_it(tmp_path, stop_after):
    asked = iter([False] * (stop_after - 1) + [True])
    with pytest.raises(Interrupted):
        train_candidate(
            Counter(), CANDIDATE, directory=tmp_path / "t", should_stop=asked.__next__
        )
    resumed = train_candidate(Counter(), CANDIDATE, directory=tmp_path / "t")
    assert resumed.seeds == train_candidate(Counter(), CANDIDATE).seeds
