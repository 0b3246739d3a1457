"""Benchmarks: what is read, when a change counts, and pages beside other devices."""

from __future__ import annotations

import json

import pytest

from bot.job_reports import benchmark_judgement, trends
from bot.job_reports.feature import JobReportSettings
from tests import harness
from tests.harness import L2, L3, UPSTREAM, replace
from tests.job_reports.conftest import Jobs, examples

API = f"/api/ci/benchmarks/{UPSTREAM}"


def record(value, *, metric="latency", model="resnet50", device="cuda", **benchmark):
    return {
        "benchmark": {"name": "inference", "extra_info": {"device": device}, **benchmark},
        "model": {"name": model, "backend": "inductor"},
        "metric": {"name": metric, "benchmark_values": value if isinstance(value, list) else [value]},
    }


def encoded(*records):
    return json.dumps(records).encode()


async def test_a_record_becomes_a_point_of_a_series(bot, jobs):
    (documented, _) = examples("Benchmarks")
    job = await jobs.leaves("benchmark-results", encoded(*documented, record([1.0, 2.0, 4.5])))
    series = {one["metric"]: one for one in await bot.rows("benchmark_series")}
    assert {name: series["latency"][name] for name in ("benchmark", "model", "backend", "device")} == {
        "benchmark": "inference", "model": "resnet50", "backend": "inductor", "device": "cuda"
    }  # fmt: skip
    points = {one["series_id"]: one for one in await bot.rows("benchmark_point")}
    point = points[series["latency"]["id"]]
    assert (point["n"], point["median"], point["min"], point["max"]) == (3, 2.0, 1.0, 4.5)
    assert points[series["compile_time_instruction_count"]["id"]]["median"] == 3_086_359_081
    _, answer = await bot.get(f"{API}?metric=latency")
    (one,) = answer["series"]
    assert (one["repo"], one["standing"]["value"], one["better"]) == (UPSTREAM, 2.0, "lower")
    _, answer = await bot.get(f"{API}/{one['series']}")
    assert [point["head_sha"] for point in answer["points"]] == [job.run.head_sha]
    status, page = await bot.get(f"/{UPSTREAM}/benchmarks/{one['series']}")
    assert status == 200
    assert f'<a href="/{UPSTREAM}/commit/{job.run.head_sha}" tabindex=-1><circle' in page
    assert "cuda inductor 2</title>" in page
    assert (await bot.get(f"{API}/{'0' * 16}"))[0] == 404


def test_changes_of_the_docs_are_told_of_as_they_say():
    for example in examples("Benchmarks")[1]:
        metric = example["metric"]
        change = trends.compare_value(
            example["now"], example["before"], least=benchmark_judgement.least_change(metric)
        )
        said = benchmark_judgement.change_in_words(metric, change.by) if change.counts else None
        assert said == example["says"], example


@pytest.mark.logic
async def test_a_change_of_level_names_its_first_commit_and_stands_above(bot, jobs):
    shas = []
    for value in [100, 101, 99, 100, 101, 99, 100, 101, 99, 100, 101, 99, 108, 109, 108]:
        job = await jobs.leaves("benchmark-results", encoded(record(value)), minutes=1)
        shas.append(job.run.head_sha)
    _, answer = await bot.get(API)
    (one,) = answer["series"]
    assert (one["standing"]["worse"], one["standing"]["step_sha"]) == (True, shas[12])
    assert round(one["standing"]["step_change"], 2) == 0.08
    _, page = await bot.get(f"/{UPSTREAM}/benchmarks")
    assert "Regressions" in page
    assert f'href="/{UPSTREAM}/commit/{shas[12]}">{shas[12][:12]}' in page
    assert "8 % slower" in page
    _, page = await bot.get(f"/{UPSTREAM}/benchmarks?base={shas[0]}&head={shas[-1][:10]}")
    assert "8 % slower" in page
    _, answer = await bot.get(f"{API}?base={shas[0]}&head={shas[-1]}")
    assert [(one["base"], one["head"], one["worse"]) for one in answer["compared"]] == [(100, 108, True)]


@pytest.mark.logic
async def test_a_backends_line_stands_beside_upstreams(bot, jobs):
    await jobs.leaves(
        "benchmark-results", encoded(record(10, metric="speedup"), record(20, model="b", metric="speedup"))
    )
    await jobs.leaves("benchmark-results", encoded(record(30, metric="speedup", device="npu")), repo=L3)
    _, page = await bot.get(f"/{UPSTREAM}/benchmarks")
    assert "Geometric mean" in page
    assert page.index(">cuda<") < page.index(">npu<")
    _, answer = await bot.get(API)
    assert {one["repo"] for one in answer["series"]} == {UPSTREAM, L3}
    npu = next(one for one in answer["series"] if one["device"] == "npu")
    status, page = await bot.get(f"/{L3}/benchmarks/{npu['series']}")
    assert status == 200
    assert "upstream cuda inductor" in page


async def test_a_pull_request_is_told_what_it_makes_slower_and_enters_no_baseline(bot, jobs, github):
    for value in (100, 101, 99, 100):
        await jobs.leaves("benchmark-results", encoded(record(value), record(value, model="b")), minutes=1)
    pull = await github.open_pull(UPSTREAM)
    await jobs.leaves(
        "benchmark-results", encoded(record(107), record(101, model="b")), trusted=False, sha=pull.head_sha
    )
    _, page = await bot.get(f"/{UPSTREAM}/pull/{pull.number}")
    assert "resnet50 on cuda · latency 7 % slower" in page
    assert "b on cuda" not in page
    _, answer = await bot.get(API)
    assert {one["standing"]["value"] for one in answer["series"]} == {100}


@pytest.mark.logic
async def test_tables_and_words_are_read(bot, jobs):
    table = b"dev,name,batch_size,speedup,accuracy\ncuda,BERT,8,1.5,pass\ncpu,BERT,8,,fail_accuracy\n"
    await jobs.leaves("benchmark-results", {"inductor_torchbench_performance.csv": table})
    series = {one["id"]: one for one in await bot.rows("benchmark_series")}
    found = {
        (series[one["series_id"]]["metric"], series[one["series_id"]]["device"]): one["status"]
        or one["median"]
        for one in await bot.rows("benchmark_point")
    }
    assert found == {
        ("speedup", "cuda"): 1.5,
        ("accuracy", "cuda"): "pass",
        ("accuracy", "cpu"): "fail_accuracy",
    }
    assert {one["benchmark"] for one in series.values()} == {"inductor_torchbench"}
    _, page = await bot.get(f"/{UPSTREAM}/benchmarks?metric=accuracy")
    assert "fail_accuracy" in page


@pytest.mark.logic
async def test_what_cannot_be_used_is_left_out_with_the_reason(bot, jobs):
    bad = {
        "the record is no object": 3,
        "benchmark is no object": {"metric": {}},
        "benchmark.name is missing": record(1) | {"benchmark": {"name": " "}},
        "metric.benchmark_values is not a list": record([]),
        "a value is no number": record([1, None]),
        "metric.target_value is no number": {**record(1), "metric": {"name": "m", "benchmark_values": [1], "target_value": "x"}},
    }  # fmt: skip
    await jobs.leaves("benchmark-results", encoded(*bad.values(), record(1)))
    (source,) = await bot.rows("ci_source")
    assert (source["records"], source["problem_count"]) == (1, len(bad))
    for reason, problem in zip(bad, source["problems"], strict=True):
        assert reason in problem["reason"]
    job = await jobs.leaves("benchmark-results", {"x.csv": b"a,b\n1,2\n"})
    assert (await jobs.state(job))[1] == "x.csv, line 1: the table has no column `name`"


@pytest.mark.logic
@pytest.mark.nightly
async def test_a_pull_request_cannot_bring_any_number_of_series(bot, jobs):
    many = [record(1, model=f"m{number}") for number in range(230)]
    await jobs.leaves("benchmark-results", encoded(*many), trusted=False)
    assert len(await bot.rows("benchmark_series")) == 200
    (source,) = await bot.rows("ci_source")
    assert source["problem_count"] == 30
    job = await jobs.leaves("benchmark-results", encoded(*many[:1] * 5_002))
    (source,) = [one for one in await bot.rows("ci_source") if one["run_id"] == job.run.id]
    assert (source["records"], source["problem_count"]) == (5_000, 2)


@pytest.mark.logic
@pytest.mark.nightly
async def test_the_comment_tells_what_changed_where_the_settings_ask_for_it(settings, github, issuer, clock):
    chosen = replace(
        settings, of_features={JobReportSettings: JobReportSettings(ci_benchmark_comment="changes")}
    )
    async with harness.running(chosen, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        jobs = Jobs(bot, github)
        for value in (100, 101, 99, 100):
            await jobs.leaves("benchmark-results", encoded(record(value)), minutes=1)
        pull = await github.open_pull(UPSTREAM)
        await bot.settle()
        await bot.report(bot.dispatch(L2), conclusion="failure")
        await bot.settle(horizon=60)
        await jobs.leaves("benchmark-results", encoded(record(107)), trusted=False, sha=pull.head_sha)
        await bot.settle(horizon=60)
        (comment,) = github.comments(pull)
        assert "resnet50 on cuda · latency 7 % slower" in comment.body
