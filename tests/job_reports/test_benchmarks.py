"""Benchmarks and compiler caches: what is read, when a change counts, pages, uploads, and what sinks get."""

from __future__ import annotations

import io
import json

import pytest

from bot.core.feature import load
from bot.evidence.collect import uploads
from bot.job_reports import benchmark_judgement, caches, exports, trends
from bot.job_reports.feature import JobReportSettings
from tests import harness
from tests.harness import L2, L3, UPSTREAM, replace
from tests.job_reports.conftest import Jobs, examples, lines

API = f"/api/ci/benchmarks/{UPSTREAM}"
BUILDS = f"/api/ci/builds/{UPSTREAM}"
BUILD = "linux-jammy / build"


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


async def send(bot, github, dispatch, kind, content, *, job="test (1, 2)"):
    payload = dispatch.client_payload
    wanted = {
        "kind": kind,
        "delivery_id": payload["delivery_id"],
        "run_id": "build-900",
        "workflow": "Nightly",
        "job": job,
    }
    bearer = bot.issuer.mint(repository=L3, repository_id=github.state.repo(L3).id, run_id="build-900")
    sent = {"Authorization": f"Bearer {bearer}", uploads.TOKEN_HEADER: payload["callback_token"]}
    status, answer = await bot.request(
        "POST", "/api/oot/uploads", params=wanted, data=io.BytesIO(content), headers=sent
    )
    assert status == 202, answer
    await bot.settle(horizon=60)


async def test_what_a_backend_measured_for_a_pull_request_is_its_and_of_that(bot, github):
    pull = await github.open_pull(UPSTREAM)
    await github.start_run(L3, event="push")  # by which the repository is known to be public
    await bot.settle()
    dispatch = bot.dispatch(L3)
    await send(bot, github, dispatch, "metrics", lines({"metric": "a", "values": {"x": 1}}))
    await send(bot, github, dispatch, "benchmark", json.dumps([record(5, device="npu")]).encode())
    await send(bot, github, dispatch, "sccache", b"direct_cache_hit\t3\ncache_miss\t1\n", job="build")
    sources = {one["kind"]: one for one in await bot.rows("ci_source")}
    assert sources.keys() == {"metrics", "benchmark", "sccache"}
    for source in sources.values():
        assert (source["repo"], source["pr_number"], source["trusted"]) == (L3, pull.number, False)
        assert (source["upstream_repo"], source["upstream_sha"]) == (UPSTREAM, pull.head_sha)
    assert (
        await bot.rows("benchmark_trend")
        == await bot.rows("ci_cache_trend")
        == await bot.rows("ci_metric_day")
        == []
    )
    _, page = await bot.get(f"/{UPSTREAM}/pull/{pull.number}")
    assert "1 measured, none changed by more than noise" in page


@pytest.mark.logic
async def test_the_same_upload_twice_is_one_file(bot, github):
    await github.open_pull(UPSTREAM)
    await bot.settle()
    dispatch = bot.dispatch(L3)
    for _ in range(2):
        await send(bot, github, dispatch, "metrics", lines({"metric": "a", "values": {"x": 1}}))
    assert len(await bot.rows("ci_source")) == len(await bot.rows("ci_metric")) == 1


async def copies(bot):
    """The objects of all files, as a sink of the layout `upstream` writes them: key -> lines."""
    keys = [(one["repository_id"], one["object_id"]) for one in await bot.rows("ci_source")]
    found = {}
    for export in exports.EXPORTS:
        shape = export.shapes["upstream"]
        async with bot.store.read() as tx:
            rows = await load(shape.read)(tx, export, keys)
        for row in rows.values():
            for one in load(shape.make)(export, row):
                found[one.key] = [json.loads(line) for line in one.content()]
    return found


@pytest.mark.logic
async def test_each_file_is_one_object_with_what_github_says_of_its_run(bot, jobs):
    metric = {
        "metric": "pytest.collect",
        "values": {"seconds": 2.5},
        "labels": {"shard": "1"},
        "from": "run.py:main",
    }
    job = await jobs.leaves("ootbot-metrics", {"m.jsonl": lines(metric)})
    await jobs.leaves("sccache-stats", json.dumps(stats({"C/C++": 3}, {"C/C++": 1})).encode())
    await jobs.leaves("benchmark-results", encoded(record(7.5), record(8.5, model="b")))
    found = await copies(bot)
    by_folder = {key.partition("/")[0]: (key, content) for key, content in found.items()}
    key, (line,) = by_folder["ossci_uploaded_metrics"]
    assert key.startswith(f"ossci_uploaded_metrics/{UPSTREAM}/main/{job.run.id}/1/")
    assert (line["job_id"], line["metric_name"], line["calling_function"]) == (
        job.id,
        "pytest.collect",
        "main",
    )
    assert json.loads(line["info"]) == {"seconds": 2.5, "shard": "1"}
    _, (cache,) = by_folder["sccache_stats"]
    assert cache["stats_cache_hits_counts_C/C++"] == 3
    _, points = by_folder["v3"]
    assert [one["metric"]["benchmark_values"] for one in points] == [[7.5], [8.5]]
    assert {(one["schema_version"], one["repo"], one["head_branch"]) for one in points} == {
        ("v3", UPSTREAM, "main")
    }


def stats(hits, misses, **fields):
    return {
        "stats": {
            "compile_requests": sum(hits.values()) + sum(misses.values()),
            "requests_executed": sum(hits.values()) + sum(misses.values()),
            "cache_hits": {"counts": hits, "adv_counts": {}},
            "cache_misses": {"counts": misses},
            **fields,
        },
        "version": "0.8.1",
    }


def encoded_stats(*documents):
    return json.dumps(documents[0] if len(documents) == 1 else list(documents)).encode()


async def test_rates_are_by_language_as_in_the_docs(bot, jobs):
    cpp, rust, runs = examples("Compiler caches")
    await jobs.leaves("sccache-stats-linux-jammy-runattempt1", encoded_stats(cpp, rust), name=BUILD)
    _, answer = await bot.get(BUILDS)
    assert {one["language"]: round(one["rate"], 2) for one in answer["builds"]} == {
        "": 0.51, "C/C++": 0.94, "Rust": 0.0
    }  # fmt: skip
    (day,) = answer["days"]
    assert (day["jobs"], day["seconds"], day["hits"]) == (1, 600, {"C/C++": 300, "Rust": 0})
    status, page = await bot.get(f"/{UPSTREAM}/builds")
    assert status == 200
    assert "94\N{NO-BREAK SPACE}%" in page
    assert f'<a href="/hud/{UPSTREAM}?on=' in page
    languages = {language: caches.judge_shares([run[language] for run in runs]) for language in runs[0]}
    assert [language for language, one in languages.items() if one.fell_at is not None] == ["Rust"]


@pytest.mark.logic
async def test_a_fall_names_the_first_commit_and_ends(bot, jobs):
    async def build(hits):
        job = await jobs.leaves(
            "sccache-stats", encoded_stats(stats({"C/C++": hits}, {"C/C++": 100 - hits})), name=BUILD
        )
        return job.run.head_sha

    *_, fell, _ = [await build(hits) for hits in (95, 95, 95, 95, 20, 21)]
    _, answer = await bot.get(BUILDS)
    first = answer["builds"][0]
    assert (first["rate"], first["usual"], first["fell_sha"]) == (0.21, 0.95, fell)
    _, page = await bot.get(f"/{UPSTREAM}/builds")
    assert f'fell at <a class="mono" href="/{UPSTREAM}/commit/{fell}"' in page
    await build(95)
    _, answer = await bot.get(BUILDS)
    assert answer["builds"][0]["fell_sha"] is None


@pytest.mark.logic
async def test_runs_that_are_not_trusted_count_nowhere(bot, jobs):
    await jobs.leaves(
        "sccache-stats", encoded_stats(stats({"C/C++": 95}, {"C/C++": 5})), name=BUILD, trusted=False
    )
    assert [row["trusted"] for row in await bot.rows("ci_cache_stats")] == [False]
    assert await bot.rows("ci_cache_day") == await bot.rows("ci_cache_trend") == []
    _, page = await bot.get(f"/{UPSTREAM}/builds")
    assert "left statistics of a compiler cache" in page


@pytest.mark.logic
async def test_ccache_is_read_likewise_and_backends_stand_beside(bot, jobs):
    lines = (
        b"stats_updated_timestamp\t1790000000\ndirect_cache_hit\t97\npreprocessed_cache_hit\t2\ncache_miss\t1\n"
        b"called_for_link\t4\ninternal_error\t1\ncache_size_kibibyte\t180\n"
    )
    await jobs.leaves("sccache-stats", {"ccache.txt": lines}, name=BUILD, repo=L3)
    await jobs.leaves(
        "sccache-stats", encoded_stats(stats({"C/C++": 1}, {"C/C++": 1}, cache_timeouts=3)), name=BUILD
    )
    by_tool = {row["tool"]: row for row in await bot.rows("ci_cache_stats")}
    ccache = by_tool["ccache"]
    assert (ccache["hits"], ccache["misses"]) == ({"C/C++": 99}, {"C/C++": 1})
    assert (ccache["requests"], ccache["executed"], ccache["errors"]) == (105, 100, 1)
    assert (ccache["reasons"], ccache["raw"]["cache_size_kibibyte"]) == ({"called_for_link": 4}, 180)
    assert by_tool["sccache"]["errors"] == 3
    _, answer = await bot.get(f"/api/ci/builds/{L3}")
    assert answer["builds"][0]["rate"] == 0.99
    _, page = await bot.get(f"/{UPSTREAM}/builds")
    assert "Backends" in page
    assert f'href="/{L3}/builds?days=30"' in page


@pytest.mark.logic
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"{", "no JSON"),
        (b'{"stats": 3}', "stats is no object"),
        (b"[1]", "the document is no object"),
        (b'{"stats": {"compile_requests": -1}}', "compile_requests is no count"),
        (b'{"stats": {"cache_hits": {"counts": {"C": 1e999}}}}', "no"),
        (b'{"stats": {"not_cached": {' + b",".join(b'"%d": 1' % n for n in range(60)) + b"}}}", "over 50 entries"),
        (b"direct_cache_hit\t3\n", "cache_miss is missing"),
    ],
)  # fmt: skip
async def test_documents_that_cannot_be_used_are_broken_and_say_why(bot, jobs, content, reason):
    job = await jobs.leaves("sccache-stats", content, name=BUILD)
    state, error = await jobs.state(job)
    assert state == "broken"
    assert reason in error
    (source,) = await bot.rows("ci_source")
    assert (source["records"], source["problem_count"]) == (0, 1)
    _, page = await bot.get(f"/{UPSTREAM}/run/{job.run.id}")
    assert "Left out of reports" in page


@pytest.mark.logic
@pytest.mark.nightly
async def test_more_documents_than_a_job_has_are_left_out(bot, jobs):
    one = stats({"C/C++": 1}, {"C/C++": 1})
    job = await jobs.leaves("sccache-stats", encoded_stats(*[one] * 205), name=BUILD)
    (row,) = await bot.rows("ci_cache_stats")
    assert row["hits"] == {"C/C++": 200}
    (source,) = await bot.rows("ci_source")
    assert (source["problem_count"], await jobs.state(job)) == (5, ("parsed", None))
