"""Is every usage log read, however odd, and is what is odd about it said?"""

from __future__ import annotations

import io
import json
import math

import pytest
from click.testing import CliRunner

from bot.console.evidence import utilization
from bot.evidence.usage.parse import columns, usage_log
from tests.evidence.usage.logs_of_usage import START, metadata, record, text

PLAIN = text(metadata(), record(5, commands=["python test_a.py"]), record(10))
TOKEN = "ghp_" + "a" * 36


def test_a_plain_log(read):
    found = read(PLAIN)
    assert (found["status"], found["exit"], found["flags"]) == ("ok", 0, [])
    assert (found["records"], found["error_records"]) == (2, 0)
    assert found["metadata"]["job_name"] == "npu / test (default, 1, 2, npu.8)"
    assert found["series"] == ["cpu|avg", "cpu|max", "memory|avg", "memory|max"]
    assert found["segments"] == [
        {
            "level": "CMD_PYTHON",
            "name": "python test_a.py",
            "start_at": START + 5,
            "end_at": START + 5,
            "extra_info": {},
        }
    ]


@pytest.mark.parametrize(
    ("log", "status", "reason"),
    [
        ("", "no_records", "the file is empty"),
        (text(metadata()), "no_records", "there is no record"),
        (text(metadata(), {"level": "record", "timestamp": START, "error": "x"}), "no_records", "there are only error records"),
        (text("{broken", record(5)), "refused", "no metadata: the first line is not a JSON object"),
        (text(record(5)), "refused", "no metadata: the first line is not of level metadata"),
        (text(metadata(data_model_version=2.0), record(5)), "refused", "version: 2 is not 1.x"),
        (text(metadata(data_model_version=None), record(5)), "refused", "version: the metadata have no data_model_version"),
        (text({"time": "x", "total_cpu_percent": 1}, {"time": "y", "total_cpu_percent": 1}), "legacy", "model of 2022"),
        (text({"level": "metadata", "interval": 1, "start_time": 1}, {"level": "record", "time": 1}), "legacy", "model of 2024"),
    ],
)  # fmt: skip
def test_a_log_that_is_not_charted_says_why(read, log, status, reason):
    found = read(log)
    assert (found["status"], found["reason"], found["exit"]) == (status, reason, 1)
    assert found["segments"] == found["series"] == []


def test_legacy_records_are_counted(read):
    old = {"time": "x", "per_process_cpu_info": []}
    assert read(text(old, old, old))["records"] == 3
    assert read(text({"level": "metadata", "interval": 1}, {"level": "record", "time": 1}))["records"] == 1


def test_metadata_of_a_log_without_records_are_kept(read):
    assert read(text(metadata()))["metadata"]["job_id"] == "77"


@pytest.mark.parametrize("first", ["{broken", metadata(data_model_version=2.0)])
def test_force_reads_on(read, first):
    found = read(text(first, record(5), record(10)), "--force")
    assert (found["status"], found["records"], found["exit"]) == ("ok", 2, 0)
    assert "forced" in found["flags"]


@pytest.mark.parametrize("version", [1, 1.0, 1.6, "1.5"])
def test_every_model_1_is_read_and_unknown_fields_are_kept(read, version):
    found = read(text(metadata(data_model_version=version, runner="npu-8"), record(5)))
    assert (found["status"], found["metadata"]["extra"]) == ("ok", {"runner": "npu-8"})


def test_a_torn_last_line_is_dropped_and_broken_lines_are_counted_out(read):
    found = read(PLAIN + '{"level":"record","timest')
    assert (found["records"], found["flags"]) == (2, ["torn_last_line"])
    found = read(
        text(metadata(), "{no json", record(5), {"level": "record", "timestamp": START}, record(10), [1])
    )
    assert (found["records"], found["flags"]) == (2, ["broken_lines"])


@pytest.mark.parametrize("bad", ["NaN", "Infinity", "-1", "10000.5", "1e400", "9" * 5000])
def test_a_number_that_cannot_be_is_none(read, bad):
    line = json.dumps(record(10, cpu=77.5)).replace("77.5", bad)
    found = read(text(metadata(), record(5), line))
    if found["records"] == 2:
        assert found["flags"] == ["invalid_values"]
        assert found["summary"]["memory|max"]["max"] == 20
    else:  # more digits than Python reads
        assert found["flags"] == ["broken_lines"]
    assert found["summary"]["cpu|max"]["max"] == 10


def test_cpu_of_several_sockets_is_kept(read):
    assert read(text(metadata(), record(5, cpu=4800)))["summary"]["cpu|max"]["max"] == 4800


def test_times_in_milliseconds_and_out_of_order(read):
    late = record(10) | {"timestamp": (START + 10) * 1000}
    found = read(text(metadata(), late, record(5, memory=50)))
    assert found["flags"] == ["milliseconds", "unordered"]
    assert found["peak_memory"]["at"] == START + 5


def test_series_by_uuid_also_when_it_changes_or_comes_twice(read):
    log = text(
        metadata(gpu_count=8), record(5, gpus=[("A", 1), ("A", 2)]), record(10, gpus=[("A", 3), ("B", 4)])
    )
    found = read(log)
    assert [name for name in found["series"] if name.endswith("util_percent|max")] == [
        "gpu_usage|0|uuid:A|util_percent|max",
        "gpu_usage|1|uuid:A|util_percent|max",
        "gpu_usage|1|uuid:B|util_percent|max",
    ]
    assert found["summary"]["gpu_usage|1|uuid:B|util_percent|max"]["avg"] == 4
    kept = usage_log.read_log(io.BytesIO(log.encode())).series["gpu_usage|1|uuid:B|util_percent|max"]
    assert math.isnan(kept[0])


def test_secrets_on_command_lines_are_masked_before_they_are_cut(read):
    long = "python " + "x" * 500 + TOKEN
    found = read(text(metadata(), record(5, commands=[f"python up.py --token {TOKEN}", long])))
    names = [one["name"] for one in found["segments"]]
    assert names[0] == "python up.py --token ***"
    assert len(names[1]) <= 512
    assert "ghp_" not in json.dumps(found)
    assert found["flags"] == ["secrets_masked"]


def test_too_many_commands(read):
    log = text(metadata(), *(record(n, commands=[f"python {n}-{i}" for i in range(250)]) for n in range(10)))
    found = read(log)
    assert (len(found["segments"]), found["flags"]) == (2000, ["commands_left_out"])


def test_too_many_records_are_thinned_evenly(read):
    log = text(metadata(), *(record(n, cpu=n % 100) for n in range(50_000)))
    found = read(log)
    assert (found["records"], found["flags"]) == (50_000, ["thinned"])
    kept = usage_log.read_log(io.BytesIO(log.encode())).timestamps
    assert list(kept) == [START + n for n in range(0, 50_000, 4)]


def test_too_many_accelerators_and_series(read):
    found = read(text(metadata(), record(5, gpus=[(f"G{n}", 1) for n in range(130)])))
    assert found["flags"] == ["thinned_gpus"]
    assert len([name for name in found["series"] if name.endswith("|max")]) == 2 + 44
    found = read(text(metadata(), *(record(n, gpus=[(f"G{n}", 1)]) for n in range(2000))))
    assert (len(found["series"]), found["flags"]) == (1024, ["series_left_out"])


@pytest.mark.parametrize(
    "hostile",
    [
        b"\xff\xfe\x00",
        b"[" * 100_000 + b"\n",
        b'{"level":"record","timestamp":1790000005,"data":'
        + b'{"a":' * 50_000
        + b"1"
        + b"}" * 50_001
        + b"\n",
        b'{"level":"record","timestamp":1790000005,"data":{"a":{"\\ud800":1}}}\n',
        b"x" * 3_000_000 + b"\n",
        b'{"level":"record","timestamp":true,"data":{}}\n{"level":"record","timestamp":"1","data":{}}\n',
        b'{"level":"record","timestamp":1790000005,"data":[1,2]}\n',
    ],
)
def test_hostile_lines_hurt_nothing(read, hostile):
    found = read(PLAIN.encode() + hostile)
    assert (found["status"], found["records"]) == ("ok", 2)
    read(hostile)


def test_error_beside_data_is_an_error_record(read):
    found = read(text(metadata(), record(5), record(10, error="driver lost")))
    assert (found["records"], found["error_records"]) == (1, 1)


def log_of(*lines):
    return usage_log.read_log(io.BytesIO(text(*lines).encode()))


def test_a_blob_holds_what_charts_need():
    usage = {"uuid": "A", "allocated_mem_value": {"max": 26500.25}, "total_mem_value": 65536.0}
    log = log_of(
        metadata(),
        record(5, cpu=12.34),
        record(17, cpu=4800, commands=["python a"], data={"gpu_usage": [usage]}),
    )
    stored = columns.decode_usage(columns.encode_usage(log))
    assert list(stored.timestamps) == [START + 5, START + 17]
    assert list(stored.series) == list(log.series)
    assert stored.series["cpu|max"][0] == 12.34
    assert math.isnan(stored.series["cpu|max"][1])
    assert stored.series["gpu_usage|0|uuid:A|allocated_mem_value|max"][1] == 26500.25
    assert (stored.commands, stored.metadata["job_id"]) == (["python a"], "77")
    tall = columns.decode_usage(columns.encode_usage(log_of(metadata(), record(5, cpu=4800))))
    assert tall.series["cpu|max"][0] == 655.34


@pytest.mark.parametrize("damage", [b"", b"x", b"x\x9c\x03\x00", None])
def test_a_damaged_blob_is_named(damage):
    whole = columns.encode_usage(log_of(metadata(), record(5)))
    with pytest.raises(columns.DamagedBlob):
        columns.decode_usage(whole[: len(whole) // 2] if damage is None else damage)


def test_as_text_and_a_missing_file(tmp_path):
    run = CliRunner()
    log = tmp_path / "usage_log.txt"
    log.write_text(
        text(
            metadata(), *(record(n, memory=n, commands=["python -m a/b.py\x1b[2J"]) for n in range(0, 99, 5))
        )
    )
    done = run.invoke(utilization, ["read", str(log)])
    assert done.exit_code == 0
    assert "most memory: 95 % at" in done.stdout
    assert "near its end" in done.stdout
    assert "\x1b" not in done.stdout
    assert run.invoke(utilization, ["read", str(tmp_path / "none")]).exit_code == 2
    assert run.invoke(utilization, ["read", str(log), "--gap", "0"]).exit_code == 2
    assert run.invoke(utilization, ["read", str(log), "--export", "/dev/null/x"]).exit_code == 2
