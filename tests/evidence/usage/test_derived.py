"""Are segments, series, summaries and drawings exactly what a plain second implementation finds?"""

from __future__ import annotations

import io
import itertools
import json
import math
import re
import statistics

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.console.evidence import utilization
from bot.evidence.usage.parse import usage_log
from bot.evidence.usage.parse.segments import find_overlap, find_segments, shown_name
from bot.evidence.usage.parse.summary import (
    Histogram,
    decode_bins,
    encode_bins,
    find_peak,
    measure_times,
    pack_histograms,
    summarize_log,
    unpack_histograms,
)
from bot.pages.usage.chart import (
    HEIGHT,
    LANES_MOST,
    WIDTH,
    TimeWindow,
    charted_series,
    choose_series,
    pack_lanes,
)
from tests.evidence.usage.logs_of_usage import START, metadata, record, text

EXAMPLE = """{"level":"metadata","workflow_id":"991","job_id":"77","workflow_name":"pull","job_name":"npu / test (default, 1, 2, npu.8)","usage_collect_interval":1.0,"data_model_version":1.5,"start_at":1790000000,"gpu_count":2,"cpu_count":48,"gpu_type":"npu-smi","error":null}
{"level":"record","timestamp":1790000005,"data":{"cpu":{"avg":41.2,"max":97.5,"raw":null},"memory":{"avg":12.1,"max":12.4}},"cmd_names":["python test_ops.py -k add"],"error":null,"log_duration":"1.10 ms","logs":[]}
{"level":"record","timestamp":1790000010,"error":"no data is collected but detected errors"}
"""
VALUES = st.one_of(st.floats(0, 100), st.integers(0, 120), st.none())
RECORDS = st.lists(
    st.tuples(
        st.integers(0, 400),
        VALUES,
        VALUES,
        st.lists(VALUES, max_size=3),
        st.lists(st.sampled_from("abcx"), max_size=3),
    ),
    max_size=25,
)
PIECES = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 500), st.integers(0, 200)).map(
        lambda one: (one[0], one[1], one[1] + one[2])
    ),
    max_size=200,
)


def log_of(*lines):
    return usage_log.read_log(io.BytesIO(text(*lines).encode()))


def ran(*at, command="python a.py"):
    return [record(n, commands=[command]) for n in at]


def export(log, folder):
    CliRunner().invoke(utilization, ["read", "-", "--export", str(folder)], input=log.encode())
    lines = [json.loads(line) for line in (folder / "time_series").read_text().splitlines()]
    return json.loads((folder / "metadata").read_text()), lines


def test_the_documents_of_the_example(tmp_path):
    about, (line,) = export(EXAMPLE, tmp_path / "new")
    assert about.pop("created_at") == line.pop("created_at") > START
    assert about == {
        "repo": "", "workflow_id": 991, "run_attempt": 1, "job_id": 77, "workflow_name": "pull",
        "job_name": "npu / test (default, 1, 2, npu.8)", "usage_collect_interval": 1.0, "data_model_version": "1.5",
        "gpu_count": 2, "cpu_count": 48, "gpu_type": "npu-smi", "start_at": 1790000000, "end_at": 1790000005,
        "segments": [{"level": "CMD_PYTHON", "name": "python test_ops.py -k add", "start_at": 1790000005, "end_at": 1790000005, "extra_info": {}}],
        "tags": [],
    }  # fmt: skip
    assert line.pop("json_data") == (
        '{"cpu": {"avg": 41.2, "max": 97.5, "raw": null}, "memory": {"avg": 12.1, "max": 12.4}}'
    )
    assert line == {
        "type": "utilization", "tags": ["record"], "time_stamp": 1790000005, "repo": "", "workflow_id": 991,
        "run_attempt": 1, "job_id": 77, "workflow_name": "pull", "job_name": "npu / test (default, 1, 2, npu.8)",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("at", "gap", "pieces"),
    [
        ([0, 60], 60, [(0, 60)]),
        ([0, 80], 60, [(0, 0), (80, 80)]),
        ([0, 10, 21], 10, [(0, 10), (21, 21)]),
        ([5], 60, [(5, 5)]),
    ],
)
def test_a_segment_splits_where_the_gap_is_longer(at, gap, pieces):
    found = find_segments(log_of(metadata(), *ran(*at)), gap)
    assert [(one.start_at - START, one.end_at - START) for one in found] == pieces


def test_no_python_command_makes_no_segment():
    assert find_segments(log_of(metadata(), *ran(1, 2, command="pytest"))) == []


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("python3 -m pytest /home/runner/work/test/test_ops.py --shard-id=1 -v", "pytest test_ops.py -v"),
        ("python test_nn.py --shard-id 2", "test_nn.py"),
        ("python", "python"),
    ],
)
def test_shown_names(command, shown):
    assert shown_name(command) == shown


def test_time_without_data_is_neither_busy_nor_idle():
    steps = [*range(0, 100, 5), *range(1000, 1100, 5)]
    log = log_of(metadata(gpu_count=1), *(record(n, cpu=96, gpus=[("A", 0)]) for n in steps))
    found = measure_times(log)
    observed = 39 * 5 + 15
    assert found.durations == {
        "observed_s": observed, "idle_gpu_s": observed, "gpu_s": observed, "no_data_s": 905 - 15,
        "saturated_s": observed,
    }  # fmt: skip
    assert found.idle_share == 1


def test_a_pause_is_not_idle_and_an_unknown_one_neither():
    used = [50] * 4 + [0] * 11 + [50] * 4 + [4.9] * 12 + [5]
    log = log_of(metadata(gpu_count=2), *(record(5 * n, gpus=[("A", u)]) for n, u in enumerate(used)))
    assert measure_times(log).durations["idle_gpu_s"] == 60
    assert measure_times(log).idle_share == 60 / (2 * 160)
    gone = log_of(metadata(), *(record(5 * n, gpus=[("AB"[n // 6 % 2], 0)]) for n in range(60)))
    assert measure_times(gone).durations["idle_gpu_s"] == 0
    assert measure_times(log_of(metadata(), record(5))).idle_share is None


def test_who_ran_at_peak_memory():
    log = log_of(
        metadata(), record(5), record(10, memory=96, commands=["python b", "python a"]), record(15, memory=96)
    )
    found = find_peak(log)
    assert (found.at, found.percent, found.left, found.commands) == (
        START + 10,
        96,
        4,
        ["python a", "python b"],
    )
    assert found.oom_risk
    assert find_peak(log_of(metadata())) is None


def test_overlap_names_pairs_and_memory_of_what_ran_alone():
    both, monitor = ["python a", "python b"], "python -m tools.stats.monitor"
    steps = [["python a"]] * 4 + [both] * 7 + [["python b"]] * 2
    lines = [record(5 * n, memory=30 + n, commands=[*names, monitor]) for n, names in enumerate(steps)]
    log = log_of(metadata(), *lines, *ran(200, command="python c"))
    found = find_overlap(log, find_segments(log))
    assert found.most_at_once == 2
    assert [(one.first, one.second, one.seconds) for one in found.pairs] == [("python a", "python b", 30)]
    assert [(one.command, one.memory, one.alone_s, one.shared_s) for one in found.commands] == [
        ("python a", 33, 20, 35),
        ("python b", 42, 10, 35),
        ("python c", 20, 15, 0),
    ]


def plain_segments(lines, gap):
    order, seen = [], {}
    for line in sorted(lines, key=lambda one: one["timestamp"]):
        for name in line["cmd_names"]:
            if name.startswith("python"):
                if name not in seen:
                    order.append(name)
                    seen[name] = set()
                seen[name].add(line["timestamp"])
    result = []
    for name in order:
        remaining = sorted(seen[name])
        while remaining:
            size = next(
                (n for n in range(1, len(remaining)) if remaining[n] - remaining[n - 1] > gap), len(remaining)
            )
            piece, remaining = remaining[:size], remaining[size:]
            result.append((name, piece[0], piece[-1]))
    return result


def plain_points(lines):
    points = {}
    for line in lines:
        found = {
            f"{kind}|{key}": value for kind in ("cpu", "memory") for key, value in line["data"][kind].items()
        }
        for index, gpu in enumerate(line["data"].get("gpu_usage", [])):
            for key, value in gpu["util_percent"].items():
                found[f"gpu_usage|{index}|uuid:{gpu['uuid']}|util_percent|{key}"] = value
        for name, value in found.items():
            if value is not None:
                points.setdefault(name, []).append(value)
    return points


@settings(max_examples=150, deadline=None)
@given(RECORDS, st.sampled_from([10, 60]))
def test_as_a_second_implementation_finds_it(tmp_path_factory, made, gap):
    lines = [
        record(at, cpu=cpu, memory=mem, gpus=[(f"G{n}", used) for n, used in enumerate(gpus)],
               commands=[f"python {name}" if name != "x" else "sh" for name in names])
        for at, cpu, mem, gpus, names in made
    ]  # fmt: skip
    log = log_of(metadata(), *lines)
    wanted = plain_segments(lines, gap)
    assert [(one.name, one.start_at, one.end_at) for one in find_segments(log, gap)] == wanted
    points = plain_points(lines)
    assert set(log.series) == set(points)
    for name, one in summarize_log(log).items():
        ordered = sorted(points[name])
        assert one.avg == pytest.approx(statistics.fmean(ordered))
        assert [one.p10, one.p50, one.p90] == [
            ordered[min(int(len(ordered) * p / 100), len(ordered) - 1)] for p in (10, 50, 90)
        ]
        assert one.max == ordered[-1]
        assert one.spike_share == len([value for value in ordered if value >= 90]) / len(ordered)
    about, documents = export(text(metadata(), *lines), tmp_path_factory.mktemp("exported"))
    assert about["segments"] == [
        {"level": "CMD_PYTHON", "name": name, "start_at": start, "end_at": end, "extra_info": {}}
        for name, start, end in plain_segments(lines, 60)
    ]
    assert about["end_at"] == max([line["timestamp"] for line in lines], default=START)
    assert [(one["time_stamp"], json.loads(one["json_data"])) for one in documents] == [
        (line["timestamp"], line["data"]) for line in lines
    ]


@given(st.lists(st.lists(st.floats(0, 10_000), max_size=30), min_size=1, max_size=6))
def test_merged_histograms_are_those_of_all_values(parts):
    each = [Histogram.of(part) for part in parts]
    values = sorted(value for part in parts for value in part)
    again = Histogram.of(values)
    number = sum(pack_histograms([one, one]) for one in each)
    total = sum(one.total for one in each)
    first, merged = unpack_histograms(decode_bins(encode_bins(number, 2), 2), [total, total])
    assert first == merged == again
    assert merged.points == len(values)
    assert number - pack_histograms([each[0], each[0]]) == sum(
        pack_histograms([one, one]) for one in each[1:]
    )
    shares = (0.01, 0.5, 0.9, 0.98, 1)
    if values:
        assert merged.mean == pytest.approx(statistics.fmean(values), abs=0.01)
        for share, found in zip(shares, merged.quantiles(*shares), strict=True):
            exact = min(100, values[max(0, -int(-share * len(values) // 1) - 1)])
            assert exact - 1 < found <= exact
    else:
        assert merged.mean is None
        assert merged.quantiles(*shares) == [None] * len(shares)


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
