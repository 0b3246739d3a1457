"""Is every record of a log in its drawing, at every scale?"""

from __future__ import annotations

import itertools
import math
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from bot.pages.usage.chart import (
    HEIGHT,
    LANES_MOST,
    WIDTH,
    TimeWindow,
    charted_series,
    choose_series,
    pack_lanes,
)

PIECES = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 500), st.integers(0, 200)).map(
        lambda one: (one[0], one[1], one[1] + one[2])
    ),
    max_size=200,
)


def covered(path):
    """The least and the greatest y that a path has at each x."""
    found, x, y = {}, 0, 0
    for word, first, second in re.findall(r"([Mlvh])(-?\d+)(?: (-?\d+))?", path):
        if word == "M":
            x, y = int(first), int(second)
        else:
            x += int(first) if word in "lh" else 0
            y += int(first) if word == "v" else int(second or 0)
        low, high = found.get(x, (y, y))
        found[x] = min(low, y), max(high, y)
    return found


def y_of(percent):
    return round(HEIGHT * (1 - min(percent, 100) / 100))


@given(
    st.lists(st.tuples(st.integers(1, 40), st.floats(0, 130)), min_size=2, max_size=3_000),
    st.floats(0, 1),
    st.floats(0, 1),
)
@settings(max_examples=60)
def test_every_point_is_between_the_ends_of_its_column(records, begin, end):
    times, at = [], 1_790_000_000
    for gap, _ in records:
        at += gap
        times.append(at)
    values = [value for _, value in records]
    whole = times[-1] - times[0]
    start, stop = sorted((times[0] + int(begin * whole), times[0] + int(end * whole)))
    window = TimeWindow(times, start, stop)
    line = window.line(values, None)
    drawn = covered(line.path)
    for time, value in zip(times, values, strict=True):
        if not window.start <= time <= window.end:
            continue
        x = min(WIDTH - 1, math.floor((time - window.start) * WIDTH / (window.end - window.start)))
        near = [drawn[each] for each in (x - 1, x, x + 1) if each in drawn]
        assert any(low <= y_of(value) <= high for low, high in near), (time, value)
    assert bool(line.over) == any(
        value > 100 for time, value in zip(times, values, strict=True) if window.start <= time <= window.end
    )


def test_a_spike_of_one_record_stays_visible_in_a_day():
    times = list(range(1_790_000_000, 1_790_000_000 + 86_400, 5))
    values = [10.0] * len(times)
    values[12_345] = 100.0
    (top,) = [
        x
        for x, (low, _) in covered(TimeWindow(times, times[0], times[-1]).line(values, None).path).items()
        if low == 0
    ]
    assert top == 12_345 * 5 * WIDTH // (times[-1] - times[0])


def test_a_line_breaks_where_nothing_is_known():
    times = [0, 5, 10, 15, 100, 105, 110]
    window = TimeWindow(times, 0, 110)
    assert [band.x for band in window.holes()] == [round(15 / 110 * WIDTH)]
    assert window.line([1.0] * 7, None).path.count("M") == 2
    assert TimeWindow([0, 5, 10, 24, 29], 0, 29).holes() == []


@given(PIECES)
@settings(max_examples=60)
def test_bars_of_one_lane_never_overlap_and_none_is_lost(pieces):
    placed, more = pack_lanes(pieces)
    assert len(placed) + more == len(pieces)
    for lane in {one.lane for one in placed}:
        assert lane < LANES_MOST
        mine = sorted((one.piece[1], one.piece[2]) for one in placed if one.lane == lane)
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(mine))


def test_names_and_choice_of_series():
    ids = ["cpu|max", "cpu|avg", "memory|max", "gpu_usage|0|uuid:A|util_percent|max", "gpu_usage|0|uuid:B|util_percent|max",
           "gpu_usage|1|uuid:C|util_percent|max", "gpu_usage|1|uuid:C|allocated_mem_percent|max",
           "gpu_usage|1|uuid:C|allocated_mem_value|max", "gpu_usage|1|temperature|max", "other|max"]  # fmt: skip
    known = charted_series(ids)
    assert [one.name for one in known] == [
        "cpu", "memory", "gpu_0_util", "gpu_0_util_2", "gpu_1_util", "gpu_1_allocated_mem_percent",
    ]  # fmt: skip
    means = {ids[3]: 50.0, ids[4]: 1.0, ids[5]: 70.0}
    names = [one.name for one in choose_series(known, "", means)]
    assert names == ["cpu", "memory", "gpu_0_util_2", "gpu_1_allocated_mem_percent"]
    assert [one.name for one in choose_series(known, "gpu_1_util,nonsense,gpu_1_util,cpu", {})] == [
        "gpu_1_util",
        "cpu",
    ]
