"""The page of a commit that was pushed or tested at night."""

import pytest

from bot.oot.results import jobs
from tests.harness import L2, L3, L4, UPSTREAM
from tests.pages.page_checks import add_job, check_escaped, links, page_text
from tests.serving import SQLITE

SHA = "c0ffee" + "0" * 34


async def ours(bot, **changes):
    """Upstream's own workflow job, as GitHub tells of it."""
    job = {"id": 5, "run_id": 77, "run_attempt": 1, "name": "lint", "workflow_name": "pull", "head_sha": SHA,
           "status": "completed", "conclusion": "failure", "html_url": "https://github.com/x/y"} | changes  # fmt: skip
    repository = {"id": bot.github.state.repo(UPSTREAM).id, "full_name": UPSTREAM}
    await bot.send("workflow_job", {"action": job["status"], "repository": repository, "workflow_job": job})
    await bot.settle()


@pytest.mark.logic
async def test_a_commit_shows_its_backends_beside_upstreams_own_jobs(bot):
    await add_job(bot, pr_number=None, event_type="push", head_sha=SHA, job_name="build")
    await add_job(bot, pr_number=None, event_type="nightly", head_sha=SHA, downstream_repo=L2, conclusion="failure",
              downstream_repo_level=2, failed_tests=2, passed_tests=None)  # fmt: skip
    await ours(bot)
    await ours(bot, run_attempt=2, id=6, conclusion="success")
    times = {"created_at": "2026-09-21T14:00:00Z", "started_at": "2026-09-21T14:02:00Z"}
    await ours(bot, name="docs", id=7, **times, completed_at="2026-09-21T14:05:00Z")
    page = (await bot.get(f"/{UPSTREAM}/commit/{SHA[:8]}"))[1]
    check_escaped(page)
    text = await page_text(bot, f"/{UPSTREAM}/commit/{SHA[:8]}")
    assert text.index(L2) < text.index(L4)
    assert "Upstream's own CI 1 of 2 passed, 1 failed" in text
    assert "✕ failed Upstream's own CI" in text
    assert "lint pull ✓ passed" in text
    assert "docs pull ✕ failed 3 min 2 min" in text  # took, queued
    assert "2 failed" in text
    assert "2 failed, 0 passed" not in text.replace(" ,", ",")  # what was not told is not nought
    status, body = await bot.get(f"/api/oot/commits/{UPSTREAM}/{SHA}")
    assert (status, {one["downstream_repo"] for one in body["jobs"]}) == (200, {L2, L4})


@pytest.mark.logic
async def test_a_pull_request_shows_upstreams_own_jobs_too(bot, github):
    pull = await github.open_pull(UPSTREAM, author="octocat")
    await bot.settle()
    await ours(bot, head_sha=pull.head_sha)
    assert "Upstream's own CI 0 of 1 passed, 1 failed" in await page_text(
        bot, f"/{UPSTREAM}/pull/{pull.number}"
    )


@pytest.mark.logic
async def test_a_refused_report_is_not_shown(bot):
    await add_job(bot, pr_number=None, event_type="nightly", head_sha=SHA, flags={"refused": True})
    assert "No backend has reported" in await page_text(bot, f"/{UPSTREAM}/commit/{SHA}")


@pytest.mark.logic
async def test_a_page_looks_again_while_upstreams_own_jobs_run(bot, github):
    pull = await github.open_pull(UPSTREAM, author="octocat")
    await bot.settle()
    for backend in (L2, L3, L4):
        await bot.report(bot.dispatch(backend), conclusion="failure")
    await bot.settle()
    page = f"/{UPSTREAM}/pull/{pull.number}"
    await add_job(bot, pr_number=None, event_type="push", head_sha=SHA)
    for sha, path in ((pull.head_sha, page), (SHA, f"/{UPSTREAM}/commit/{SHA}")):
        await ours(bot, head_sha=sha, status="in_progress", conclusion=None, id=len(path))
        assert 'http-equiv="refresh"' in (await bot.get(path))[1]
        await ours(bot, head_sha=sha, id=len(path))
        assert "http-equiv" not in (await bot.get(path))[1]


@SQLITE
async def test_of_very_many_backends_only_those_one_has_to_look_at_are_told_in_full(bot):
    for number in range(30):
        await add_job(bot, pr_number=None, event_type="push", head_sha=SHA, downstream_repo=f"lab/chip-{number:02}",
                  conclusion="failure" if number == 20 else "success")  # fmt: skip
    path = f"/{UPSTREAM}/commit/{SHA}"
    page = (await bot.get(path))[1]
    check_escaped(page)
    assert page.count("<details") == 12
    assert page.index("lab/chip-20") < page.index("lab/chip-00")
    assert 'class="backend line good" id="backend-lab-chip-29"' in page
    (address,) = links(page, "backend=lab%2Fchip-29") or links(page, "backend=lab/chip-29")
    opened = (await bot.get(address))[1]
    assert '<details class="backend good" id="backend-lab-chip-29" open>' in opened


@SQLITE
async def test_of_more_attempts_than_a_page_reads_the_newest_count(bot):
    for attempt, conclusion in enumerate(("failure", "failure", "success"), 1):
        bot.clock.advance(60)
        rows = {}
        for number in range(1_000):
            row = jobs.BLANK | {
                "status": "completed", "conclusion": conclusion, "downstream_repo": L4, "upstream_repo": UPSTREAM,
                "head_sha": SHA, "delivery_id": "d", "workflow_name": "CI", "job_name": f"shard {number}",
                "run_id": "1", "run_attempt": attempt, "downstream_repo_level": 4, "event_type": "push",
                "source": "callback", "flags": {}, "received_at": bot.clock.now(), "updated_at": bot.clock.now(),
            }  # fmt: skip
            rows[jobs.job_key(row)] = row | {"job_key": jobs.job_key(row)}
        async with bot.store.transaction() as tx:
            await jobs.add_jobs(tx, rows)
    assert "push · 1000 of 1000 passed" in await page_text(bot, f"/{UPSTREAM}/commit/{SHA}")
