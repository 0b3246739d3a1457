"""Compiler caches: what is read, how it is counted by language, and when a build is told of as fallen."""

from __future__ import annotations

import json

import pytest

from bot.job_reports import caches
from tests.harness import L3, UPSTREAM
from tests.job_reports.conftest import examples

BUILDS = f"/api/ci/builds/{UPSTREAM}"
BUILD = "linux-jammy / build"


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


def encoded(*documents):
    return json.dumps(documents[0] if len(documents) == 1 else list(documents)).encode()


async def test_rates_are_by_language_as_in_the_docs(bot, jobs):
    cpp, rust, runs = examples("Compiler caches")
    await jobs.leaves("sccache-stats-linux-jammy-runattempt1", encoded(cpp, rust), name=BUILD)
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
            "sccache-stats", encoded(stats({"C/C++": hits}, {"C/C++": 100 - hits})), name=BUILD
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
    await jobs.leaves("sccache-stats", encoded(stats({"C/C++": 95}, {"C/C++": 5})), name=BUILD, trusted=False)
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
        "sccache-stats", encoded(stats({"C/C++": 1}, {"C/C++": 1}, cache_timeouts=3)), name=BUILD
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
    job = await jobs.leaves("sccache-stats", encoded(*[one] * 205), name=BUILD)
    (row,) = await bot.rows("ci_cache_stats")
    assert row["hits"] == {"C/C++": 200}
    (source,) = await bot.rows("ci_source")
    assert (source["problem_count"], await jobs.state(job)) == (5, ("parsed", None))
