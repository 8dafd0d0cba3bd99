"""That training solves levels which it has not seen; minutes long."""

import pytest

from allocsearch.allocation import Allocation
from allocsearch.config import TrainingConfig
from allocsearch.parsing import parse
from allocsearch.tasks.protocol import n_chunks
from allocsearch.tasks.sokoban import Sokoban
from allocsearch.tasks.sokoban.config import SokobanConfig


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_four_levels_learn_to_solve_half_of_held_out_levels(seed):
    """The allocation that README names, as `allocsearch train` trains it."""
    tiny = Sokoban.budgets["tiny"]
    task = Sokoban(parse(SokobanConfig, tiny.task))
    training = TrainingConfig(**{**tiny.training, "horizon": 700_000})
    options = {"nonrecurrent_form": "trimmed"}
    allocation = Allocation("conv_lstm", False, 4, 1, 14, options=options)
    state = task.init(allocation, training, (seed,))
    state, _ = task.train(state, n_chunks(task, training))
    (metrics,) = task.evaluate(state)
    assert task.baseline()["solved_fraction"] < 0.15
    assert metrics["solved_fraction"] >= 0.5
