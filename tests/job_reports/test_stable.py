"""Stable commits: each move of the last good commit is kept once."""

from __future__ import annotations

from tests.harness import UPSTREAM


async def test_each_move_of_the_last_good_commit_is_kept_once(bot, github):
    async def push(conclusion):
        sha = await github.push(UPSTREAM)
        run = await github.start_run(UPSTREAM, event="push", head_sha=sha)
        job = await github.start_job(run, "build")
        await github.finish_job(job, conclusion)
        await github.finish_run(run, conclusion)
        await bot.wait(1_300)
        return sha

    first = await push("success")
    await push("failure")
    last = await push("success")
    _, answer = await bot.get(f"/api/ci/stable/{UPSTREAM}")
    assert [one["sha"] for one in answer["stable_pushes"]] == [last, first]
    assert answer["stable_pushes"][0]["repository"] == UPSTREAM
    status, page = await bot.get(f"/{UPSTREAM}/stable")
    assert status == 200
    assert f'href="/{UPSTREAM}/commit/{last}"' in page
    assert (await bot.get("/api/ci/stable/no/where"))[0] == 404
