"""A stranger who follows every link and guesses others learns nothing of a private repository."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.harness import L2, L3, L4, UPSTREAM, running
from tests.oot.pages.page_checks import links
from tests.serving import SQLITE

VEILED = "veiled/plans"
STARTS = ("/oot", "/oot?days=1", "/oot/levels", "/oot/metrics", "/api", "/readyz", "/metrics", "/nowhere")
GUESSED = (
    "/{repo}/pull/1", "/{repo}/commit/{sha}", "/api/oot/pulls/{repo}/1", "/api/oot/commits/{repo}/{sha}",
    "/api/records/pull_request/{repo}", "/api/records/pull_request/{repo}/1", "/api/records/check_run/{repo}", "/{repo}",
)  # fmt: skip
VARYING = ("X-Request-ID", "Date", "Content-Length")


@pytest.fixture
async def watching(settings, github, issuer, clock):
    """A bot that watches two repositories, one of them private from the first."""
    github.add_repo(VEILED, private=True)
    two = replace(settings, upstream_repo=(UPSTREAM, VEILED))
    async with running(two, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        await github.open_pull(UPSTREAM, title="Make it faster", author="octocat")
        await bot.settle()
        bot.hidden = await github.open_pull(VEILED, title="Quiet scheme", author="margaretha")
        await bot.settle()
        failed = {
            "failed_tests": [{"name": "test_scheme"}],
            "test_results": {"passed": 0, "failed": 1, "skipped": 0},
        }
        for backend in (L2, L3, L4):
            await bot.report(bot.dispatch(backend, at=-2))
            await bot.report(bot.dispatch(backend), conclusion="failure", run_id="901", job="plot", **failed)
        await bot.settle()
        yield bot


async def crawl(bot, starts):
    """Every page and JSON that can be reached by links of ours, by address."""
    found, coming = {}, list(starts)
    while coming and len(found) < 150:
        path = coming.pop().split("#")[0]
        if path in found:
            continue
        async with bot.http.get(bot.url + path) as answer:
            found[path] = f"{answer.headers}{await answer.text()}"
        coming += [one for one in links(found[path], "/") if one.startswith("/")]
    return found


@SQLITE
async def test_who_follows_every_link_learns_nothing_of_what_is_private(watching):
    bot = watching
    found = await crawl(bot, STARTS)
    assert {f"/oot/{L4}?days=30", f"/{UPSTREAM}/pull/1", f"/api/oot/pulls/{UPSTREAM}/1"} <= {
        path.split("?sha")[0] for path in found
    }
    for path, page in found.items():
        for word in (VEILED, "Quiet", "margaretha", bot.hidden.head_sha[:7], "test_scheme", "plot"):
            assert word not in page, (path, word)
    for one in (await bot.get("/api/oot/summary"))[1]["backends"]:
        counts = [one[name] for name in ("runs", "failure", "waiting")]
        assert counts == ([1, 0, 0] if one["level"] > 1 else [0, 0, 0])


@SQLITE
async def test_who_guesses_is_told_what_is_told_of_what_is_not_there(watching):
    for path in GUESSED:
        private, unknown = [await told(watching, path, repo) for repo in (VEILED, "no/body")]
        assert private == unknown, path
        assert private[0] == 404, path


async def told(bot, path, repo):
    """Status, headers and text of an answer about a repository, without its name."""
    async with bot.http.get(bot.url + path.format(repo=repo, sha=bot.hidden.head_sha)) as answer:
        headers = {name: value for name, value in answer.headers.items() if name not in VARYING}
        return answer.status, headers, (await answer.text()).replace(repo, "REPO")


async def test_strangers_private_repositories_are_no_load_for_anybody(bot, github):
    """Anybody may install a public App, on as many repositories as they like, and rename them all day."""
    await github.open_pull(UPSTREAM, author="octocat")
    await bot.settle()
    strange = [
        {"id": 10**6 + number, "full_name": f"some/body{number}", "private": True} for number in range(40_000)
    ]
    for start in range(0, len(strange), 5_000):
        body = {
            "action": "added",
            "installation": {"id": 77, "account": {"login": "some", "id": 5}},
            "repositories_added": strange[start : start + 5_000],
        }
        assert (await bot.send("installation_repositories", body))[0] == 202
    await bot.settle()
    for path in (
        "/oot",
        f"/oot/{L4}",
        f"/{UPSTREAM}/pull/1",
        f"/api/records/pull_request/{UPSTREAM}",
        "/readyz",
    ):
        async with bot.http.get(bot.url + path) as answer:
            assert answer.status == 200, path
    assert (await bot.get("/api/records/repository/some/body7"))[0] == 404
