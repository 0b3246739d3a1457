"""A backend's page lists the dispatches that ended without a report, and why."""

from dataclasses import replace

import pytest

from bot.core.json_fields import iso_time
from bot.oot.results import dispatches
from tests.harness import L2, L4, UPSTREAM, running
from tests.pages.page_checks import check_escaped, links, page_text

TITLE = "Dispatches nobody answered"
NEWEST = 20


async def unanswered(bot, backend, query="", **options):
    status, body = await bot.get(f"/api/oot/backends/{backend}{query}", **options)
    assert status == 200, body
    return body["unanswered"]


async def told(bot, backend):
    return next(row for row in await bot.rows("oot_dispatch") if row["backend"] == backend)


@pytest.mark.logic
async def test_a_dispatch_nobody_answered_leads_to_the_pull_request_at_that_commit(bot, github, pull):
    assert TITLE not in await page_text(bot, f"/oot/{L4}")
    first, dispatch = pull.head_sha, await told(bot, L4)
    await bot.report(bot.dispatch(L2))
    await bot.wait(24 * 3600 + 120)
    await github.push_commit(pull)
    await bot.settle()
    page = (await bot.get(f"/oot/{L4}"))[1]
    check_escaped(page)
    part = page[page.index('id="unanswered"') :]
    (link,) = links(part, f"/pull/{pull.number}?sha=")
    assert link == f"/{UPSTREAM}/pull/{pull.number}?sha={first}#backend-{L4.replace('/', '-')}"
    assert "#unanswered" in links(page, "#unanswered")  # from the number to the list
    text = await page_text(bot, f"/oot/{L4}")
    assert f"{TITLE} For State Why Asked #{pull.number} {first[:7]} ✕ never started" in text
    assert "no report within 24 h 24 h ago" in text
    assert TITLE not in await page_text(
        bot, f"/oot/{L2}"
    )  # it answered the first, and has time for the second
    assert await unanswered(bot, L2) == []
    (one,) = await unanswered(bot, L4)
    assert one["reason"].startswith("no report within")
    assert one == {
        "delivery_id": dispatch["delivery_id"], "upstream_repo": UPSTREAM, "event_type": "pull_request",
        "pr_number": pull.number, "head_sha": first, "state": "never_started", "reason": one["reason"],
        "created_at": iso_time(dispatch["created_at"]), "dispatched_at": iso_time(dispatch["dispatched_at"]),
    }  # fmt: skip


@pytest.mark.logic
async def test_a_report_that_comes_late_takes_it_from_the_list(bot, pull):
    await bot.wait(24 * 3600 + 120)
    assert len(await unanswered(bot, L4)) == 1
    assert (await bot.report(bot.dispatch(L4)))[0] == 200
    assert await unanswered(bot, L4) == []
    body = (await bot.get(f"/api/oot/backends/{L4}"))[1]
    assert (body["backend"]["never_started"], body["backend"]["runs"]) == (0, 1)


@pytest.mark.logic
async def test_what_github_would_not_take_is_among_them(bot, github):
    github.uninstall(L4, github.app)
    await bot.wait(60)
    await github.open_pull(UPSTREAM, author="octocat")
    await bot.settle()
    (one,) = await unanswered(bot, L4)
    assert (one["state"], L4 in one["reason"]) == ("not_installed", True)
    assert "✕ not installed the App is not installed" in await page_text(bot, f"/oot/{L4}")


async def test_only_the_newest_of_the_window_are_listed(bot, pull):
    row = await told(bot, L4)
    async with bot.store.transaction() as tx:
        for number in range(100, 125):
            other = {"id": f"id {number}", "delivery_id": f"delivery {number}", "pr_number": number}
            at = {"created_at": row["created_at"] + number, "dispatched_at": row["created_at"] + number}
            await dispatches.add_dispatch(tx, row | other | at | {"state": "never_started"})
    found = await unanswered(bot, L4)
    assert [one["pr_number"] for one in found] == list(range(124, 104, -1))
    text = await page_text(bot, f"/oot/{L4}")
    assert f"Only the newest {NEWEST} are shown." in text
    bot.clock.advance(3 * 86_400)
    assert await unanswered(bot, L4, "?days=2") == []
    assert len(await unanswered(bot, L4, "?days=7")) == NEWEST


@pytest.mark.logic
async def test_those_for_a_private_upstream_are_left_out(settings, github, issuer, clock):
    github.add_repo("open/one")
    two = replace(settings, upstream_repo=(UPSTREAM, "open/one"))
    async with running(two, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        await github.open_pull(UPSTREAM)
        await bot.wait(24 * 3600 + 120)
        about = {"id": github.state.repo(UPSTREAM).id, "full_name": UPSTREAM, "private": True}
        about["updated_at"] = "2026-10-01T00:00:00Z"
        await bot.send("repository", {"action": "privatized", "repository": about})
        await bot.settle()
        assert await unanswered(bot, L4) == []
        assert TITLE not in await page_text(bot, f"/oot/{L4}")
        admin = {"Authorization": "Bearer an admin token of ours"}
        assert len(await unanswered(bot, L4, headers=admin)) == 1
