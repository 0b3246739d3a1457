"""What real programs write is read as they mean it: sccache, ccache, PyTorch's benchmarks, and others by way of jq."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import pytest

from bot.evidence.collect.parse.contract import ParserInput
from bot.job_reports.parse.benchmarks import parse_benchmarks
from bot.job_reports.parse.cache_stats import parse_stats
from tests.job_reports.conftest import DOC, lines

pytestmark = pytest.mark.logic
# as benchmarks/dynamo/common.py appends it, a line for each column of its table
INDUCTOR = {
    "benchmark": {
        "name": "TorchInductor", "mode": "training", "dtype": "amp",
        "extra_info": {
            "device": "cuda", "quantization": None, "batch_size": 8,
            "output": "/var/lib/jenkins/test/test-reports/inductor_with_cudagraphs_torchbench_amp_training_cuda_performance.csv",
        },
    },
    "model": {"name": "BERT_pytorch", "type": "OSS model", "backend": "inductor", "origins": ["torchbench"]},
    "metric": {"name": "speedup", "benchmark_values": [1.62]},
}  # fmt: skip
PHONE = {"name": "Apple iPhone 15", "type": "iOS 18.0", "avail_mem_in_gb": 0, "total_mem_in_gb": 0}
HYPERFINE = {
    "results": [{"command": "make check", "mean": 1.1, "stddev": 0.1, "median": 1.0, "user": 0.9, "system": 0.1,
                 "min": 1.0, "max": 1.3, "times": [1.0, 1.0, 1.3], "exit_codes": [0, 0, 0]}]
}  # fmt: skip
PYTEST = {
    "machine_info": {}, "version": "5.1.0",
    "benchmarks": [{"group": None, "name": "test_sort", "fullname": "test_a.py::test_sort", "params": None,
                    "stats": {"min": 0.1, "max": 0.3, "mean": 0.2, "median": 0.19, "rounds": 5, "iterations": 1}}],
}  # fmt: skip
GOOGLE = {
    "context": {"num_cpus": 8},
    "benchmarks": [
        {"name": "BM_Sort/8", "run_name": "BM_Sort/8", "run_type": "iteration", "repetition_index": at, "iterations": 9,
         "real_time": 20.0 + at, "cpu_time": 19.0, "time_unit": "ns"}
        for at in range(3)
    ] + [{"name": "BM_Sort/8_mean", "run_name": "BM_Sort/8", "run_type": "aggregate", "aggregate_name": "mean",
          "real_time": 21.0, "cpu_time": 19.0, "time_unit": "ns"}],
}  # fmt: skip


@pytest.fixture
def parsed(tmp_path):
    def parse(parser, content, name="document.json"):
        path = tmp_path / name
        path.write_bytes(content)
        return parser(ParserInput(path=path, blob=tmp_path / "blob", members=(), options=None))

    return parse


def inductor(metric, *, output="performance", compiler="inductor_with_cudagraphs"):
    file = f"/reports/{compiler}_torchbench_amp_training_cuda_{output}.csv"
    benchmark = {**INDUCTOR["benchmark"], "extra_info": {"device": "cuda", "output": file}}
    return INDUCTOR | {"benchmark": benchmark, "metric": metric}


def test_torchinductors_settings_are_series_of_their_own_and_words_are_a_status(parsed):
    speedup = {"name": "speedup", "benchmark_values": [1.5]}
    accuracy = {"name": "accuracy", "extra_info": {"benchmark_values": ["pass"]}}
    found = parsed(
        parse_benchmarks,
        lines(
            INDUCTOR,
            inductor(speedup, compiler="inductor_no_cudagraphs"),
            inductor(speedup, output="accuracy"),
            inductor(accuracy, output="accuracy"),
        ),
    )
    assert found.problem_count == 0
    assert [(one.backend, one.metric, one.median or one.status) for one in found.rows] == [
        ("inductor_with_cudagraphs", "speedup", 1.62),
        ("inductor_no_cudagraphs", "speedup", 1.5),
        ("inductor_with_cudagraphs accuracy", "speedup", 1.5),
        ("inductor_with_cudagraphs", "accuracy", "pass"),
    ]
    assert {(one.device, one.mode, one.dtype) for one in found.rows} == {("cuda", "training", "amp")}


def test_settings_that_are_too_many_are_left_out_but_not_what_was_measured_on(parsed):
    about = INDUCTOR["benchmark"]["extra_info"] | {f"setting_{number}": None for number in range(400)}
    record = INDUCTOR | {"benchmark": {**INDUCTOR["benchmark"], "extra_info": about}, "runners": [PHONE]}
    (one,) = parsed(parse_benchmarks, lines(record)).rows
    assert one.extra == {"runners": [PHONE]}


def test_lines_may_be_lists_and_a_device_is_what_the_dashboard_takes_it_for(parsed):
    def of(runner, **about):
        return INDUCTOR | {"benchmark": {"name": "b", "extra_info": about}, "runners": [runner]}

    rocm = {"name": "rocm", "type": "AMD Instinct MI300X", "gpu_count": 8}
    found = parsed(
        parse_benchmarks,
        lines(of(rocm, device="cuda"), [of(PHONE)], of({"gpu_info": "H100", "cpu_info": "x86_64"})),
    )
    assert [(one.device, one.arch) for one in found.rows] == [
        ("rocm", "AMD Instinct MI300X"),
        ("Apple iPhone 15", "iOS 18.0"),
        ("H100", "x86_64"),
    ]


def test_ccache_counts_as_its_own_summary_does(parsed):
    counts = {"direct_cache_hit": 97, "preprocessed_cache_hit": 2, "cache_miss": 1, "called_for_link": 4,
              "could_not_find_compiler": 1, "remote_storage_timeout": 2, "cleanups_performed": 0}  # fmt: skip
    as_lines = "".join(f"{name}\t{count}\n" for name, count in counts.items()).encode()
    (one,) = parsed(parse_stats, as_lines, "ccache.txt").rows
    assert (one.requests, one.executed, one.not_cacheable, one.errors) == (105, 100, 4, 3)
    assert parsed(parse_stats, json.dumps(counts).encode()).rows == [one]


def commands():
    """The programs for jq that the docs show."""
    text = DOC.read_text(encoding="utf-8").replace("\\\n", "")
    return re.findall(r"\$ jq '([^']*)'", text)


@pytest.mark.skipif(shutil.which("jq") is None, reason="there is no jq")
@pytest.mark.parametrize(
    ("at", "given", "said"),
    [
        (0, HYPERFINE, ("make check", "seconds", 1.0, 3)),
        (1, PYTEST, ("test_a.py::test_sort", "seconds", 0.19, 1)),
        (2, GOOGLE, ("BM_Sort/8", "real_time_ns", 21.0, 3)),
    ],
    ids=["hyperfine", "pytest-benchmark", "google"],
)
def test_other_tools_are_read_by_way_of_jq_as_the_docs_show(parsed, at, given, said):
    done = subprocess.run(
        ["jq", commands()[at]], input=json.dumps(given).encode(), capture_output=True, check=True
    )
    (one,) = parsed(parse_benchmarks, done.stdout).rows
    assert (one.model, one.metric, one.median, one.n) == said
