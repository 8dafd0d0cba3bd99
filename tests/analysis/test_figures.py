"""What figures show, and that drawing them is sound and reproducible."""

import math
from dataclasses import replace

import pytest

from allocsearch.analysis.figure_data import (
    baseline_in_view,
    curve_panels,
    front_panels,
    metric_label,
)
from allocsearch.analysis.figures import learning_curves, pareto_figure, save_figure
from allocsearch.analysis.pareto import pareto_front


def test_front_panel_holds_all_candidates_and_the_front(search):
    (panel,) = front_panels(search)
    assert [arm.arm for arm in panel.arms] == ["recurrent", "nonrecurrent"]
    recurrent = panel.arms[0]
    assert [p.number for p in recurrent.points] == [0, 1, 2, 3, 4]
    mine = [r for r in search if r.arm == "recurrent"]
    assert [p.number for p in recurrent.front] == [r.number for r in pareto_front(mine)]
    assert all(p.low < p.score < p.high for p in recurrent.points)
    assert panel.costs == [1, 2, 4, 8]
    assert panel.frame.baseline == -1.0
    assert "budget tiny (2.07 MFLOP per step)\n3 k environment" in panel.frame.title


def test_nothing_that_is_not_finite_is_plotted(search):
    (panel,), (curves,) = front_panels(search), curve_panels(search)
    assert all(math.isfinite(v) and v < 99 for v in panel.values + curves.values)


def test_one_seed_has_no_error_bar(trial):
    (panel,) = front_panels([trial(1.0)])
    (point,) = panel.arms[0].points
    assert point.low == point.score == point.high == 1.0


def test_budgets_and_experts_have_panels_of_their_own(trial):
    small = trial(budget="small", budget_flops=10**8)
    assert len(front_panels([trial(), small])) == 2
    assert len(curve_panels([trial(), small])) == 2


def test_curves_average_the_points_that_all_seeds_share(trial):
    result = trial((3.0, 6.0))
    short = replace(result.seeds[1], curve=result.seeds[1].curve[:2])
    result = replace(result, seeds=(result.seeds[0], short))
    (panel,) = curve_panels([result])
    (curve,) = panel.curves
    assert curve.steps == (1000, 2000)
    assert curve.means == (1.5, 3.0)
    assert curve.errors == pytest.approx((0.5, 1.0))
    assert curve.best
    assert curve_panels([result], "unknown") == []


def test_a_far_baseline_is_not_drawn_into_the_data():
    assert baseline_in_view(1.0, [2.0, 4.0])
    assert not baseline_in_view(-100.0, [2.0, 4.0])
    assert not baseline_in_view(None, [2.0])
    assert baseline_in_view(0.0, [0.5, 0.5])


def test_the_label_says_when_less_is_better(trial, loss):
    assert metric_label(loss) == "loss (nats/token), lower is better"
    assert metric_label(trial().objective) == "return"


@pytest.mark.parametrize("draw", [pareto_figure, learning_curves])
@pytest.mark.parametrize("n", [0, 1, 2])
def test_few_trials_and_one_arm(trial, draw, n, tmp_path):
    figure = draw([trial(number=i) for i in range(n)])
    png, svg = save_figure(figure, tmp_path / "new" / f"v1.{n}")
    assert (png.name, svg.name) == (f"v1.{n}.png", f"v1.{n}.svg")
    assert png.read_bytes().startswith(b"\x89PNG")


def test_depth_axis_has_integer_ticks_and_arms_differ_without_colour(search):
    (axes,) = pareto_figure(search).axes
    labels = [tick.get_text() for tick in axes.get_xticklabels()]
    assert labels == ["1", "2", "4", "8"]
    assert axes.get_xscale() == "log"
    bars = [c for c in axes.containers if c.get_label()]
    markers = {bar.lines[0].get_marker() for bar in bars}
    colors = {bar.lines[0].get_color() for bar in bars}
    assert len(markers) == len(colors) == 2


def test_many_depths_are_ticked_at_powers_of_two(trial):
    results = [trial((L, L), L, number=L) for L in range(1, 17)]
    (axes,) = pareto_figure(results).axes
    labels = [tick.get_text() for tick in axes.get_xticklabels()]
    assert labels == ["1", "2", "4", "8", "16"]


@pytest.mark.parametrize("draw", [pareto_figure, learning_curves])
def test_the_same_results_give_the_same_bytes(search, draw, tmp_path):
    first = save_figure(draw(search), tmp_path / "first")
    second = save_figure(draw(search), tmp_path / "second")
    for a, b in zip(first, second, strict=True):
        assert a.read_bytes() == b.read_bytes()
    assert b"<dc:date>" not in first[1].read_bytes()


def test_names_are_not_read_as_mathematics(trial, tmp_path):
    results = [trial(task="$x^{$", budget="a_b $\\frac", unit="$\\nothing$")]
    save_figure(pareto_figure(results), tmp_path / "front")
    save_figure(learning_curves(results), tmp_path / "curves")


@pytest.mark.parametrize("x", ["core_flops", "parameters", "seconds", "memory_bytes"])
def test_other_axes_draw(search, x, tmp_path):
    save_figure(pareto_figure(search, x), tmp_path / x)
