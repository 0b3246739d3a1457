"""Addresses and JSON that today's dashboards ask for."""

from __future__ import annotations

import pytest

from tests.harness import L1, L2, L3, L4, UPSTREAM, running

pytestmark = pytest.mark.logic


@pytest.mark.parametrize(
    ("asked", "ours"), [("/crcr", "/oot"), (f"/crcr/{L4}", f"/oot/{L4}")], ids=["overview", "backend"]
)
async def test_their_pages_lead_to_ours(bot, asked, ours):
    async with bot.http.get(bot.url + asked, allow_redirects=False) as answer:
        assert (answer.status, answer.headers["Location"]) == (302, ours)
    assert (await bot.get(asked))[0] == 200


async def test_the_allowlist_by_level(bot):
    assert await bot.get("/api/crcr/allowlist") == (
        200,
        {
            "L1": [{"repo": L1, "oncalls": []}],
            "L2": [{"repo": L2, "oncalls": ["alice", "bob"]}],
            "L3": [{"repo": L3, "oncalls": ["carol"]}],
            "L4": [{"repo": L4, "oncalls": ["dave"]}],
        },
    )


async def test_titles_of_pull_requests_in_the_order_asked(bot, github):
    await github.open_pull(UPSTREAM, title="First", author="octocat")
    await github.open_pull(UPSTREAM, title="Second", author="hubot")
    await bot.settle()
    status, found = await bot.get(f"/api/crcr/pr-info?repo={UPSTREAM.upper()}&prs=2,0,1,77,2")
    assert status == 200
    assert found == [
        {"prNumber": 2, "title": "Second", "author": "hubot"},
        {"prNumber": 0, "title": "", "author": ""},
        {"prNumber": 1, "title": "First", "author": "octocat"},
        {"prNumber": 77, "title": "", "author": ""},
        {"prNumber": 2, "title": "Second", "author": "hubot"},
    ]
    status, found = await bot.get(f"/api/crcr/pr-info?repo=org/other&prs={','.join(map(str, range(80)))}")
    assert (status, [one["prNumber"] for one in found]) == (200, list(range(50)))
    assert {one["title"] for one in found} == {""}


async def test_titles_of_commits_pushed_and_of_heads(bot, github):
    pull = await github.open_pull(UPSTREAM, title="Add a kernel", author="octocat")
    pushed = await github.push(UPSTREAM, "main", message="Fix it\n\nAt last.", by="hubot")
    await bot.settle()
    path = f"/api/crcr/commit-info?repo={UPSTREAM}&shas={pushed.upper()},{'f' * 40},{pull.head_sha}"
    assert await bot.get(path) == (
        200,
        [
            {"sha": pushed.upper(), "title": "Fix it", "author": "hubot"},
            {"sha": "f" * 40, "title": "", "author": ""},
            {"sha": pull.head_sha, "title": "Add a kernel", "author": "octocat"},
        ],
    )


WRONG = [
        "pr-info", "pr-info?repo=a/b", "pr-info?prs=1", "pr-info?repo=&prs=1", "pr-info?repo=a/b&prs=",
        "pr-info?repo=a/b&prs=x", "pr-info?repo=a/b&prs=-1", "pr-info?repo=nothing&prs=1",
        "pr-info?repo=a/b&repo=c/d&prs=1", "commit-info", "commit-info?repo=a/b", "commit-info?repo=a/b&shas=zz",
        "commit-info?repo=a/b&shas=,,",
]  # fmt: skip


async def test_what_is_missing_or_wrong_is_said(bot):
    for query in WRONG:
        status, answer = await bot.get(f"/api/crcr/{query}")
        assert (status, answer["error"]) == (400, "invalid_parameter"), query


async def test_a_private_upstream_is_as_unknown(settings, github, issuer, clock):
    async with running(settings, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        await github.open_pull(UPSTREAM, title="Secret plans", author="octocat")
        about = {"id": github.state.repo(UPSTREAM).id, "full_name": UPSTREAM, "private": True}
        about["updated_at"] = "2026-10-01T00:00:00Z"
        await bot.send("repository", {"action": "privatized", "repository": about})
        await bot.settle()
        head = github.state.repo(UPSTREAM).branches["main"]
        asked = f"/api/crcr/pr-info?repo={UPSTREAM}&prs=1"
        assert (await bot.get(asked))[1] == [{"prNumber": 1, "title": "", "author": ""}]
        assert (await bot.get(f"/api/crcr/commit-info?repo={UPSTREAM}&shas={head}"))[1][0]["title"] == ""
        assert (await bot.get("/api/crcr/allowlist"))[0] == 404
        admin = {"Authorization": "Bearer an admin token of ours"}
        assert (await bot.get(asked, headers=admin))[1][0]["title"] == "Secret plans"
