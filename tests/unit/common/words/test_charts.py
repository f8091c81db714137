"""Places of charts: marks lie where their numbers say, inside the drawing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.words.charts import columns, heat, linear_ticks, number, points, rows

HEIGHTS = st.lists(st.just(0.0) | st.floats(1e-6, 1e9), min_size=1, max_size=40)


@given(st.lists(HEIGHTS, min_size=1, max_size=3))
def test_columns_are_as_high_as_their_numbers(series):
    """Bars are in proportion to their values, in its bin beside the others, none above the axis."""
    n_bins = min(map(len, series))
    series = [values[:n_bins] for values in series]
    texts = [[f"{s}.{i}" for i in range(n_bins)] for s in range(len(series))]
    chart = columns(series, [str(i) for i in range(n_bins + 1)], texts)
    wide = 100 / n_bins
    highest = max(map(max, series)) or 1
    tallest = max((bar.y for bar in chart.marks), default=1)
    assert len(chart.marks) == sum(value > 0 for values in series for value in values)
    for bar in chart.marks:
        s, i = map(int, bar.text.split("."))
        assert bar.series == s
        assert 0 <= bar.y <= 100
        assert i * wide <= bar.x + 0.01
        assert i * wide + s * wide / len(series) == pytest.approx(bar.x, abs=0.08 * wide + 0.01)
        assert 0 < bar.width <= wide / len(series)
        assert bar.x + bar.width <= (i + 1) * wide + 0.02
        assert bar.y / tallest == pytest.approx(series[s][i] / highest, abs=0.01)
    assert 2 <= len(chart.across) <= 8
    assert chart.up[0] == (0, "0")
    assert chart.up[-1][0] == 100


def test_rows_are_as_long_as_their_numbers():
    """Bars are in proportion to the longest one of all series, and every label has one of each series."""
    assert rows([[4, 1, 0], [2, 8, 0]], ["a", "b", "c"], [["4", "1", "none"], ["2", "8", "none"]]) == (
        ("a", ((0.5, "4"), (0.25, "2"))),
        ("b", ((0.125, "1"), (1.0, "8"))),
        ("c", ((0.0, "none"), (0.0, "none"))),
    )
    assert rows([[0]], ["a"], [["none"]]) == (("a", ((0.0, "none"),)),)


def test_labels_of_bins_stand_in_their_middle():
    """A chart has labels at the edges of bins if there is one more of them than bins, else in the middle."""
    edges = columns([[1, 2]], ["0", "1", "2"], [["", ""]])
    middles = columns([[1, 2]], ["a", "b"], [["", ""]])
    assert edges.across == ((0, "0"), (50, "1"), (100, "2"))
    assert middles.across == ((25, "a"), (75, "b"))


def test_heat_goes_from_cream_to_red():
    """Larger shares are redder, and what lies outside is not wilder than the ends."""
    greens = [int(heat(share).split(",")[1]) for share in (-1, 0, 0.25, 0.5, 1, 7)]
    assert greens == sorted(greens, reverse=True)
    assert (greens[0], greens[-1]) == (greens[1], greens[-2])


def test_points_are_where_their_numbers_say():
    """The lower axis has powers of ten, the left one round numbers from 0; points lie between them."""
    chart = points([(0.01, 0.0), (0.1, 0.5), (7.0, 0.75)], [0, 1, 0], ["x", "y", "z"])
    assert [label for _, label in chart.across] == ["0.01", "0.1", "1", "10"]
    assert [label for _, label in chart.up] == ["0", "0.2", "0.4", "0.6", "0.8"]
    assert [(point.x, point.y, point.series, point.text) for point in chart.marks] == [
        (0, 0, 0, "x"),
        (33.33, 62.5, 1, "y"),
        (94.84, 93.75, 0, "z"),
    ]
    assert all(point.width == 0 for point in chart.marks)
    alone = points([(1.0, 0.0)], [0], ["x"])
    assert alone.across == ((0, "1"), (100, "10"))
    assert (alone.marks[0].x, alone.marks[0].y) == (0, 0)


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.integers(2, 8))
def test_ticks_enclose(lowest, width, most):
    """Ticks are equally spaced, enclose the interval, and are not many more than asked for."""
    ticks = linear_ticks(lowest, lowest + width, most)
    assert ticks[0] <= lowest + 1e-6 * width
    assert ticks[-1] >= lowest + width * (1 - 1e-6)
    assert 2 <= len(ticks) <= most + 3


def test_numbers_are_short():
    """Axes show no more digits than they need."""
    assert [number(each) for each in (0, 0.1, 12, 250_000, 3e9, 1e-7)] == [
        *("0", "0.1", "12", "250,000", "3,000,000,000", "1e-07"),
    ]
