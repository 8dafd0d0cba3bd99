"""Legs of a trial: paused at rungs and taken up again, they make the whole."""

import jax.numpy as jnp
import pytest

from allocsearch.allocation import Allocation
from allocsearch.candidate import Candidate
from allocsearch.config import TrainingConfig
from allocsearch.trial import train_candidate


class Counting:
    """Chunks are counted; the score is the count."""

    steps_per_chunk = 10
    unit = "steps"
    final_window = 2

    def init(self, allocation, training, seeds):
        del allocation, training, seeds
        return jnp.zeros(())

    def train(self, state, n_chunks):
        return state + n_chunks, [{"loss": 0.0}]

    def evaluate(self, state, split="valid"):
        del split
        return [{"score": float(state)}]

    def training_scores(self, means):
        return {"loss": means["loss"]}

    def baseline(self, split="valid"):
        del split
        return {}


def candidate(horizon, n_evaluations):
    training = TrainingConfig(horizon=horizon, n_evaluations=n_evaluations, n_seeds=1)
    return Candidate(Allocation("mlp", True, 1, 1, 8), training, (0,))


@pytest.mark.parametrize("legs", [(0.5, 1.0), (0.1, 0.35, 1.0), (1.0,)])
def test_legs_make_the_whole(tmp_path, legs):
    whole = train_candidate(Counting(), candidate(200, 10))
    for until in legs:
        part = train_candidate(
            Counting(), candidate(200, 10), directory=tmp_path / "c", until=until
        )
    assert part.seeds == whole.seeds
    assert part.fraction == whole.fraction == 1.0
    assert float(part.state) == 20.0


@pytest.mark.parametrize(
    ("until", "n_done"),
    [(0.1, 2), (0.11, 4), (0.34, 8), (0.99, 20)],
)
def test_a_leg_ends_at_the_first_evaluation_that_is_far_enough(until, n_done):
    part = train_candidate(Counting(), candidate(200, 10), until=until)
    assert float(part.state) == n_done
    assert part.fraction == n_done / 20
    assert part.seeds[0].curve[-1] == {"steps": 10.0 * n_done, "score": float(n_done)}


def test_a_leg_that_was_passed_trains_no_more(tmp_path):
    directory = tmp_path / "c"
    train_candidate(Counting(), candidate(200, 10), directory=directory, until=0.5)
    again = train_candidate(
        Counting(), candidate(200, 10), directory=directory, until=0.2
    )
    assert again.fraction == 0.5
