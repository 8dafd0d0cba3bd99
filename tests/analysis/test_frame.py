"""The data frame holds every trial, and survives CSV."""

import io
import json
import math

import pandas as pd
import pytest

from allocsearch.allocation import Allocation
from allocsearch.analysis.frame import results_frame


def rebuild(row: pd.Series) -> Allocation:
    radius = row["radius"]
    return Allocation(
        expert=row["expert"],
        recurrent=row["arm"] == "recurrent",
        depth=int(row["depth"]),
        n_experts=int(row["n_experts"]),
        width=int(row["width"]),
        radius="full" if radius == "full" else int(radius),
        aggregation=row["aggregation"],
        options=json.loads(row["options"]),
    )


@pytest.fixture
def results(trial):
    form = {"nonrecurrent_form": "trimmed", "kernel": 5}
    odd = Allocation("conv_lstm", False, 2, 4, 6, 1, "mean", form)  # type: ignore
    return [
        trial((1.0, 2.0, 4.0), 8, core=2**60 + 1, baseline=-5.0),
        trial((3.0,), number=1, settings={"momentum": 0.9}),
        trial((), number=2, state="failed", core=None, reason="out of [memory]"),
        trial((1.0, math.inf), allocation=odd),
    ]


def test_every_trial_can_be_read_back_even_from_csv(results):
    frame = results_frame(results)
    text = io.StringIO(frame.to_csv(index=False))
    for table in (frame, pd.read_csv(text, dtype={"core_flops": "Int64"})):
        assert [rebuild(row) for _, row in table.iterrows()] == [
            r.allocation for r in results
        ]
        assert table["core_flops"][0] == 2**60 + 1
        assert pd.isna(table["core_flops"][2])
        assert table["score"][0] == pytest.approx(7 / 3)
        assert table["state"].tolist() == [r.state for r in results]


def test_columns_are_flat_and_what_is_unknown_is_missing(results):
    frame = results_frame(results)
    assert frame["settings.momentum"].notna().tolist() == [False, True, False, False]
    assert frame["settings.learning_rate"][0] == 3e-4
    assert frame["baseline.return"][0] == -5.0
    assert frame["metrics.solved_fraction"][0] == pytest.approx(0.1)
    assert frame["n_seeds"].tolist() == [3, 1, 0, 2]
    assert frame["standard_error"].notna().tolist() == [True, False, False, False]
    # The single seed borrows the variance of the arm's other trial.
    assert frame["ci_low"].notna().tolist() == [True, True, False, False]
    assert frame["total_flops"][1] == 2_030_000
    assert frame["reason"][2] == "out of [memory]"
    assert not any(isinstance(v, dict | list) for v in frame.iloc[0])


def test_an_empty_study_has_the_same_fixed_columns(trial):
    empty, full = results_frame([]), results_frame([trial(settings={})])
    assert len(empty) == 0
    per_name = ("metrics.", "measures.")
    assert list(empty) == [c for c in full if not c.startswith(per_name)]
