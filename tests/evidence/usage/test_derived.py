"""Are segments, series, summaries and documents exactly what a plain second implementation finds?"""

from __future__ import annotations

import io
import json
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
from tests.evidence.usage.logs_of_usage import START, metadata, record, text

EXAMPLE = """{"level":"metadata","workflow_id":"991","job_id":"77","workflow_name":"pull","job_name":"npu / test (default, 1, 2, npu.8)","usage_collect_interval":1.0,"data_model_version":1.5,"start_at":1790000000,"gpu_count":2,"cpu_count":48,"gpu_type":"npu-smi","error":null}
{"level":"record","timestamp":1790000005,"data":{"cpu":{"avg":41.2,"max":97.5,"raw":null},"memory":{"avg":12.1,"max":12.4}},"cmd_names":["python test_ops.py -k add"],"error":null,"log_duration":"1.10 ms","logs":[]}
{"level":"record","timestamp":1790000010,"error":"no data is collected but detected errors"}
"""


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
