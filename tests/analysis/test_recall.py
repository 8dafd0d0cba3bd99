"""Recall, precision and F1 of counts, against loops and numbers worked out by hand."""

import numpy as np
import pytest

from allocsearch.analysis.bootstrap import bootstrap_intervals, bootstrap_ratios
from allocsearch.analysis.recall import macro_f1, recall_curve
from allocsearch.analysis.recall_figure import recall_figure, save_recall


def counts():
    """Three items over four steps, of which the last has nothing to find."""
    return {
        "targets": np.array([[4, 2, 0, 0], [2, 2, 2, 0], [2, 0, 0, 0]]),
        "emitted": np.array([[3, 1, 1, 0], [1, 2, 0, 0], [0, 0, 0, 0]]),
        "right": np.array([[2, 1, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0]]),
        "confusion": np.array([[[3, 1], [2, 6]], [[1, 0], [1, 4]], [[0, 2], [0, 2]]]),
    }


def curve(label="net", reading="network"):
    return recall_curve(label, reading, counts(), np.array([2, 3, 1]))


def test_a_curve_by_hand():
    found = curve()
    assert found.recall[:3] == (3 / 8, 2 / 4, 0.0)
    assert found.precision[:3] == (3 / 4, 2 / 3, 0.0)
    assert np.isnan(found.recall[3])
    assert np.isnan(found.precision[3])
    assert found.n_items == (3, 2, 1, 0)
    assert found.n_targets == (8, 4, 2, 0)
    assert (found.recall_overall, found.precision_overall) == (5 / 14, 5 / 8)
    # True first class: 4 told right of 7, told 7 times; second: 12 of 15, told 15.
    assert found.macro_f1 == pytest.approx((8 / 14 + 24 / 30) / 2)
    assert found.n_steps == 3
    rows = found.rows()
    assert [row["step"] for row in rows] == [0, 1, 2]
    assert rows[1]["recall"] == 0.5
    assert (rows[0]["label"], rows[0]["reading"]) == ("net", "network")
    for row in rows:
        assert row["recall_low"] <= row["recall"] <= row["recall_high"]


def test_f1_leaves_out_classes_that_are_not_there():
    assert macro_f1(np.array([[3, 0, 1], [0, 0, 0], [0, 0, 4]])) == pytest.approx(
        (6 / 7 + 8 / 9) / 2
    )
    assert macro_f1(np.diag([5, 2, 1])) == 1.0
    assert np.isnan(macro_f1(np.zeros((2, 2))))


def test_intervals_of_ratios_against_resampling_one_by_one():
    rng = np.random.default_rng(0)
    below = rng.integers(0, 4, (12, 2))
    above = rng.binomial(below, 0.6)
    found = bootstrap_ratios(above, below, n_resamples=300, seed=5)
    drawn = np.random.default_rng(5).integers(12, size=(300, 12))
    for column in range(2):
        ratios = [above[i, column].sum() / below[i, column].sum() for i in drawn]
        expected = np.quantile(ratios, [0.025, 0.975])
        np.testing.assert_allclose(found[column], expected)
    # Over ones a ratio is a mean.
    ones = np.ones_like(above)
    np.testing.assert_allclose(
        bootstrap_ratios(above, ones), bootstrap_intervals(above)
    )
    assert np.isnan(bootstrap_ratios(above, 0 * below)).all()


def test_the_figure_shows_the_curves(tmp_path):
    curves = [curve("a"), curve("a", "observation"), curve("b")]
    figure = recall_figure(curves, "Recall", "of three items")
    (axes,) = figure.axes
    lines = axes.get_lines()
    assert [line.get_label() for line in lines] == ["a", "a, observation", "b"]
    for line in lines:
        np.testing.assert_array_equal(line.get_xdata(), [0, 1, 2])
        np.testing.assert_array_equal(line.get_ydata(), curves[0].recall[:3])
    first, observed, second = (line.get_color() for line in lines)
    assert first == observed != second
    assert lines[0].get_linestyle() != lines[1].get_linestyle()
    for name, begins in (("x.png", b"\x89PNG"), ("x.svg", b"<?xml")):
        save_recall(figure, tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(begins)
