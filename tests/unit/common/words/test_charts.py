"""Geometry of charts: marks lie where their numbers say, inside the drawing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.words.charts import WIDTH, columns, heat, linear_ticks, number, points, rows, shortened

HEIGHTS = st.lists(st.just(0.0) | st.floats(1e-6, 1e9), min_size=1, max_size=40)


@given(st.lists(HEIGHTS, min_size=1, max_size=3))
def test_columns_are_as_high_as_their_numbers(series):
    """Bars stand on the axis, in proportion to their values, each in its bin beside the others of it."""
    n_bins = min(map(len, series))
    series = [values[:n_bins] for values in series]
    texts = [[f"{s}.{i}" for i in range(n_bins)] for s in range(len(series))]
    chart = columns(series, [str(i) for i in range(n_bins + 1)], texts)
    wide = (chart.right - chart.left) / n_bins
    highest = max(map(max, series)) or 1
    tallest = max((bar.height for bar in chart.bars), default=1)
    assert len(chart.bars) == sum(value > 0 for values in series for value in values)
    for bar in chart.bars:
        s, i = map(int, bar.text.split("."))
        assert bar.series == s
        assert bar.y + bar.height == pytest.approx(chart.base, abs=0.02)
        assert bar.y >= 0
        assert chart.left + i * wide <= bar.x + 0.02
        assert bar.x + bar.width <= chart.left + (i + 1) * wide + 0.02
        assert bar.height / tallest == pytest.approx(series[s][i] / highest, abs=0.01)
    assert 2 <= len(chart.across) <= 8
    assert chart.up[0].label == "0"


def test_rows_are_as_long_as_their_numbers():
    """The longest bar leaves room for its value, the others follow in proportion, long labels are cut."""
    chart = rows([[4, 1, 0]], ["a" * 60, "b\nc", "d"], [["4 %", "1 %", "none"]])
    first, second, third = chart.rows
    assert (first.bar.width, third.bar.width) == (4 * second.bar.width, 0)
    assert first.bar.x + first.bar.width < WIDTH - 50
    assert first.label == "a" * 25 + "…"
    assert (second.label, second.bar.text) == ("b c", "b\nc: 1 %")
    assert [row.bar.y for row in chart.rows] == sorted(row.bar.y for row in chart.rows)


def test_two_series_of_rows_lie_under_one_label():
    """Before and after lie below each other, labelled once, and do not overlap."""
    chart = rows([[4, 1], [3, 2]], ["a", "b"], [["4", "1"], ["3", "2"]])
    assert [row.label for row in chart.rows] == ["a", "", "b", ""]
    assert [row.bar.series for row in chart.rows] == [0, 1, 0, 1]
    ends = [0.0]
    for row in chart.rows:
        assert row.bar.y >= ends[-1] - 0.02
        ends.append(row.bar.y + row.bar.height)
    assert ends[-1] <= chart.height


def test_marks_of_bins_stand_in_their_middle():
    """A chart has labels at the edges of bins if there is one more of them than bins, else in the middle."""
    edges = columns([[1, 2]], ["0", "1", "2"], [["", ""]])
    middles = columns([[1, 2]], ["a", "b"], [["", ""]])
    assert [tick.at for tick in edges.across] == [edges.left, (edges.left + edges.right) / 2, edges.right]
    assert [tick.at for tick in middles.across] == pytest.approx(
        [edges.left + share * (edges.right - edges.left) for share in (0.25, 0.75)]
    )


def test_heat_goes_from_cream_to_red():
    """Larger shares are redder, and what lies outside is not wilder than the ends."""
    greens = [int(heat(share).split(",")[1]) for share in (-1, 0, 0.25, 0.5, 1, 7)]
    assert greens == sorted(greens, reverse=True)
    assert (greens[0], greens[-1]) == (greens[1], greens[-2])


@pytest.mark.parametrize("logarithmic", [False, True])
def test_points_keep_their_order(logarithmic):
    """Further right and further up in the drawing is larger, and all marks lie between the axes."""
    places = [(0.01, 0.0), (0.2, 0.5), (7.0, 0.75)]
    chart = points(places, [0, 1, 0], ["x", "y", "z"], logarithmic=logarithmic)
    assert [point.x for point in chart.points] == sorted(point.x for point in chart.points)
    assert [point.y for point in chart.points] == sorted((point.y for point in chart.points), reverse=True)
    assert all(chart.left <= point.x <= chart.right for point in chart.points)
    assert chart.points[0].y == chart.base
    labels = [tick.label for tick in chart.across]
    assert labels == (["0.01", "0.1", "1", "10"] if logarithmic else ["0", "2", "4", "6", "8"])


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6), st.integers(2, 8))
def test_ticks_enclose(lowest, width, most):
    """Ticks are equally spaced, enclose the interval, and are not many more than asked for."""
    ticks = linear_ticks(lowest, lowest + width, most)
    assert ticks[0] <= lowest + 1e-6 * width
    assert ticks[-1] >= lowest + width * (1 - 1e-6)
    assert 2 <= len(ticks) <= most + 3


def test_numbers_and_labels_are_short():
    """Axes show no more digits than they need, and no label breaks a line."""
    assert [number(each) for each in (0, 0.1, 12, 250_000, 3e9, 1e-7)] == [
        *("0", "0.1", "12", "250,000", "3,000,000,000", "1e-07"),
    ]
    assert shortened("two\r\nlines", 20) == "two lines"
