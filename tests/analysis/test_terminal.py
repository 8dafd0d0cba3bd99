"""The plain-text plot puts marks where the data are."""

import pytest

from allocsearch.analysis.terminal import nice_ticks, terminal_plot


@pytest.mark.parametrize("width", [40, 80, 120])
def test_marks_and_lines_fit_the_width(search, width):
    text = terminal_plot(search, width=width)
    assert max(map(len, text.splitlines())) <= width
    plot = text[: text.index("└")]
    # Four depths each; the second trial at depth 2 is dominated.
    assert plot.count("●") == plot.count("■") == 4
    assert plot.count("○") == plot.count("□") == 1


def test_more_score_is_higher_and_more_depth_is_further_right(trial):
    results = [trial(float(L), L, number=L) for L in (1, 2, 4)]
    lines = terminal_plot(results, width=60).splitlines()
    rows = {i: line.index("●") for i, line in enumerate(lines[:-4]) if "●" in line}
    columns = list(rows.values())
    assert len(columns) == 3
    assert columns == sorted(columns, reverse=True)
    # The axis is logarithmic: octaves are equally far apart.
    assert abs((columns[0] - columns[1]) - (columns[1] - columns[2])) <= 1


def test_depth_labels_stand_below_their_marks(trial):
    lines = terminal_plot([trial(1.0, 8), trial(2.0, 2, number=1)]).splitlines()
    axis = next(line for line in lines if "┬" in line)
    labels = lines[lines.index(axis) + 1]
    assert [labels[i] for i, c in enumerate(axis) if c == "┬"] == ["2", "8"]


def test_the_baseline_is_a_line_only_where_it_is_near(trial):
    near = terminal_plot([trial((1.0, 3.0), baseline=0.5)])
    assert "╌╌╌" in near
    assert "╌ untrained 0.5" in near
    results = [trial(1.0, baseline=-500.0), trial(3.0, 1, number=1, baseline=-500.0)]
    far = terminal_plot(results)
    assert "╌" not in far
    assert "untrained −500 (off)" in far


def test_few_trials_and_other_axes(trial, search):
    assert "nothing to plot" in terminal_plot([])
    for x in ("core_flops", "seconds"):
        assert "●" in terminal_plot(search, x)
    assert terminal_plot([trial(0.0)]).count("●") == 2  # the mark and the legend


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0.0, 10.0, [0, 2, 4, 6, 8, 10]), (-0.1, 0.1, [-0.1, -0.05, 0.0, 0.05, 0.1])],
)
def test_ticks_are_round(low, high, expected):
    assert nice_ticks(low, high, 5) == pytest.approx(expected)
