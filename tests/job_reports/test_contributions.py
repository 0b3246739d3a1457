"""Contributions of outside people: who counts, when a day is counted again, and who waits."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime

import pytest
import sqlalchemy as sa

from bot.ingest.tables import records
from bot.job_reports.contributions import describe_contribution
from bot.job_reports.feature import JobReportSettings
from tests import harness
from tests.harness import L3, UPSTREAM
from tests.job_reports.conftest import examples

API = f"/api/ci/contributions/{UPSTREAM}"


def test_who_counts_is_as_the_docs_say():
    empty = dict.fromkeys(records["pull_request"].c.keys())
    for number, one in enumerate(examples("Contributions")[0], 1):
        merged_at = round(datetime.fromisoformat(one["merged"]).replace(tzinfo=UTC).timestamp() * 1000)
        pull = empty | {
            "repository_id": 1, "number": number, "user_login": one["author"], "state": "closed", "draft": False,
            "author_association": one["author_association"], "labels": one["labels"], "created_at": merged_at - 1,
            "merged_at": merged_at, "closed_at": merged_at,
        }  # fmt: skip
        found = describe_contribution(pull, JobReportSettings(), None)
        assert (found is not None) == one["counts"], one


async def review(bot, github, pull, *, by="grace", association="MEMBER"):
    repo = {
        "id": pull.repo.id,
        "full_name": pull.repo.full_name,
        "private": False,
        "owner": {"login": "pytorch"},
    }
    at = datetime.fromtimestamp(bot.clock.now() / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    url = f"{github.api_url}/repos/{pull.repo.full_name}/pulls/{pull.number}"
    one = {
        "id": 500 + pull.number, "state": "approved", "user": {"login": by, "id": 7}, "submitted_at": at,
        "updated_at": at, "author_association": association, "pull_request_url": url, "commit_id": pull.head_sha,
    }  # fmt: skip
    await bot.send("pull_request_review", {"action": "submitted", "review": one, "repository": repo})


async def test_a_merged_pull_request_counts_until_it_is_reverted(bot, github):
    pull = await github.open_pull(UPSTREAM, author="alice")
    bot.clock.advance(7_200)
    await review(bot, github, pull)
    bot.clock.advance(3_600)
    await github.merge(pull)
    await bot.settle(horizon=60)
    (day,) = await bot.rows("contribution_day")
    assert (day["pr_count"], day["users"], day["new_users"]) == (1, ["alice"], 1)
    assert (day["review_hours"], day["merge_hours"]) == ([2.0], [3.0])
    _, answer = await bot.get(API)
    assert [(one["pr_count"], one["user_count"], one["users"]) for one in answer["days"]] == [(1, 1, None)]
    status, page = await bot.get(f"/{UPSTREAM}/contributions")
    assert status == 200
    assert "Merged in a week" in page
    assert "alice" not in page
    await github.label(pull, "Reverted")
    await bot.settle(horizon=60)
    assert await bot.rows("contribution_day") == await bot.rows("contribution_pull") == []


@pytest.mark.logic
async def test_members_bots_and_drafts_do_not_count(bot, github):
    await github.merge(await github.open_pull(UPSTREAM, author="grace", author_association="MEMBER"))
    await github.merge(await github.open_pull(UPSTREAM, author="dependabot[bot]"))
    await github.open_pull(UPSTREAM, author="alice", draft=True)
    await bot.settle(horizon=60)
    assert await bot.rows("contribution_pull") == []
    _, page = await bot.get(f"/{UPSTREAM}/contributions")
    assert "No pull request from outside was merged" in page


@pytest.mark.logic
async def test_who_waits_is_listed_until_a_member_reviews(bot, github):
    pull = await github.open_pull(UPSTREAM, author="alice", title="Please look")
    await github.open_pull(L3, author="alice")
    bot.clock.advance(8 * 86_400)
    await review(bot, github, pull, by="someone", association="CONTRIBUTOR")
    await bot.settle(horizon=60)
    _, answer = await bot.get(API)
    assert answer["waiting"] == 1
    _, page = await bot.get(f"/{UPSTREAM}/contributions")
    assert "Please look" in page
    await review(bot, github, pull)
    await bot.settle(horizon=60)
    assert (await bot.get(API))[1]["waiting"] == 0


@pytest.mark.logic
async def test_a_label_may_say_merged_and_names_are_told_where_that_is_wanted(
    settings, github, issuer, clock
):
    options = JobReportSettings(ci_contributors="names", ci_external_label="open source", ci_bots=("robot",))
    chosen = replace(settings, of_features={JobReportSettings: options})
    async with harness.running(chosen, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        pull = await github.open_pull(
            UPSTREAM, author="alice", author_association="MEMBER", labels=["open source", "Merged"]
        )
        await github.close(pull)
        robot = await github.open_pull(UPSTREAM, author="robot", labels=["open source"])
        await github.merge(robot)
        await bot.settle(horizon=60)
        _, answer = await bot.get(API)
        assert [one["users"] for one in answer["days"]] == [["alice"]]
        await github.reopen(pull)
        await bot.settle(horizon=60)
        assert (await bot.get(API))[1]["days"] == []


@pytest.mark.logic
@pytest.mark.nightly
async def test_newcomers_are_the_same_in_any_order(bot, github):
    pulls = []
    for author in ("alice", "alice", "bob", "alice", "bob"):
        pull = await github.open_pull(UPSTREAM, author=author)
        await github.merge(pull)
        pulls.append(pull)
        bot.clock.advance(86_400)
    await bot.settle(horizon=60)
    expected = await bot.rows("contribution_day")
    assert [one["new_users"] for one in sorted(expected, key=lambda one: one["day"])] == [1, 0, 1, 0, 0]
    numbers = [pull.number for pull in pulls]
    random.Random(3).shuffle(numbers)
    async with bot.store.transaction() as tx:
        for table in ("contribution_pull", "contribution_day"):
            await tx.run(sa.delete(sa.table(table)))
    for number in numbers:
        async with bot.store.transaction() as tx:
            tx.enqueue("contributions", f"{pulls[0].repo.id}/{number}")
        await bot.settle(horizon=60)
    by_day = sorted(expected, key=lambda one: one["day"])
    assert sorted(await bot.rows("contribution_day"), key=lambda one: one["day"]) == by_day


@pytest.mark.logic
async def test_a_private_repository_is_hidden(bot, github):
    await github.merge(await github.open_pull(L3, author="alice"))
    await bot.settle(horizon=60)
    async with bot.store.transaction() as tx:
        table = records["repository"]
        await tx.run(sa.update(table).where(table.c.full_name == L3).values(private=True))
    for path in ("contributions", "builds", "custom", "benchmarks", "stable"):
        assert (await bot.get(f"/{L3}/{path}"))[0] == 404
        assert (await bot.get(f"/api/ci/{path}/{L3}"))[0] == 404
        status, page = await bot.get(f"/{UPSTREAM}/{path}")
        assert status == 200
        assert L3 not in page
