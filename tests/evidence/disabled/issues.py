"""Issues of a repository, as GitHub tells of them."""

from __future__ import annotations

from bot.core.json_fields import iso_time
from bot.evidence.disabled import make_lists
from tests.harness import START, UPSTREAM

LISTS = ("disabled-tests-condensed", "disabled-jobs", "unstable-jobs")


def about(bot, repo=UPSTREAM, **more):
    """A repository as deliveries describe it."""
    known = bot.github.state.repo(repo)
    described = {"id": known.id, "full_name": repo, "default_branch": "main", "private": False}
    return described | {"updated_at": iso_time(START)} | more


def issue(bot, number, title, body="", *, repo=UPSTREAM, by="erin", state="open", action=None, at=0, **more):
    """The delivery about an issue."""
    fields = {
        "id": 50_000_000 + bot.github.state.repo(repo).id * 100_000 + number,
        "number": number,
        "title": title,
        "body": body,
        "state": state,
        "user": {"login": by, "id": 1},
        "html_url": url(number, repo),
        "created_at": iso_time(START),
        "updated_at": iso_time(START + at * 1000),
    }
    action = action or ("opened" if state == "open" else "closed")
    return "issues", {"action": action, "repository": about(bot, repo), "issue": fields | more}


def url(number, repo=UPSTREAM):
    return f"https://github.com/{repo}/issues/{number}"


def may_write(bot, *logins, repo=UPSTREAM):
    for login in logins:
        bot.github.set_permission(repo, login, "write")


async def deliver(bot, *deliveries):
    for event, body in deliveries:
        await bot.send(event, body)
    await bot.settle(horizon=5)


async def half_hour(bot):
    """Let the bot look after everything once more."""
    await bot.wait(2 * make_lists.EVERY)
    await bot.settle(horizon=30)


async def lists(bot, repo=UPSTREAM, query=""):
    """All three lists."""
    found = []
    for name in LISTS:
        status, body = await bot.get(f"/api/ci/{repo}/{name}.json{query}")
        assert status == 200, (name, body)
        found.append(body)
    return found


async def platforms(bot, query="", repo=UPSTREAM):
    """Platforms by disabled test."""
    return {name: one[2] for name, one in (await lists(bot, repo, query))[0].items()}
