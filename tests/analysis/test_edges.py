"""Best values at the edge of their range."""

import pytest

from allocsearch.allocation import Allocation
from allocsearch.analysis.edges import edge_notes

RATES = {"tiny": {"learning_rate": (1e-4, 3e-4, 1e-3)}}


@pytest.mark.parametrize(
    ("rate", "edge"), [(1e-4, "smallest"), (3e-4, None), (1e-3, "largest")]
)
def test_a_best_setting_at_the_edge_is_noted(trial, rate, edge):
    results = [trial(2.0, settings={"learning_rate": rate}), trial(1.0, number=1)]
    notes = edge_notes(results, RATES)
    assert len(notes) == (edge is not None)
    assert all(edge in note and f"{rate:g}" in note for note in notes)


def test_depth_has_an_edge_at_the_top_alone(trial):
    searched = {"tiny": {"depth": (1, 2, 8)}}
    deep = trial(2.0, allocation=Allocation("conv_lstm", True, 8, 1, 8))
    shallow = trial(2.0, allocation=Allocation("conv_lstm", True, 1, 1, 8))
    assert "depth L" in edge_notes([deep], searched)[0]
    assert edge_notes([shallow], searched) == []


def test_a_single_value_or_text_has_no_edge(trial):
    searched = {"tiny": {"learning_rate": (3e-4,), "precision": ("a", "b")}}
    assert edge_notes([trial(1.0)], searched) == []
