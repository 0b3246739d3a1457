"""Who may see what, while nobody has told us whether upstream is private?"""

import contextlib
from dataclasses import replace

import pytest

from tests.harness import ALLOWLIST, L4, UPSTREAM, running

pytestmark = pytest.mark.logic

CONFIG = "org/config"
SOURCE = f"{CONFIG}:allowlist.yml"
TOKEN = {"Authorization": "Bearer an admin token of ours"}
PATHS = ("/oot", f"/oot/{L4}", "/oot/levels", "/oot/metrics", "/api/oot/summary", "/api/oot/allowlist")


@contextlib.asynccontextmanager
async def bot_without_visibility(settings, github, issuer, clock, repo):
    """A bot whose first question about a repository GitHub does not answer."""
    github.faults.add(method="GET", path=f"^/repos/{repo}$", status=500, times=10_000)
    async with running(settings, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        yield bot


@pytest.fixture
def fresh(settings):
    """Settings with an empty database: nobody has asked GitHub anything yet."""
    (settings.data_dir / "ootbot.db").unlink(missing_ok=True)
    return settings


async def statuses(bot, paths, **options):
    return {path: (await bot.get(path, **options))[0] for path in paths}


async def test_an_upstream_of_unknown_visibility_is_shown_to_operators_only(fresh, github, issuer, clock):
    async with bot_without_visibility(fresh, github, issuer, clock, UPSTREAM) as bot:
        assert await statuses(bot, PATHS) == dict.fromkeys(PATHS, 404)
        assert await statuses(bot, PATHS, headers=TOKEN) == dict.fromkeys(PATHS, 200)
        github.faults.clear()
        await bot.wait(90)  # it is asked again every minute
        assert await statuses(bot, PATHS) == dict.fromkeys(PATHS, 200)


async def test_an_upstream_that_github_calls_private_is_hidden_before_any_event(fresh, github, issuer, clock):
    github.add_repo("veiled/plans", private=True)
    veiled = replace(fresh, upstream_repo=("veiled/plans",))
    async with running(veiled, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        assert await statuses(bot, PATHS) == dict.fromkeys(PATHS, 404)


async def test_github_is_asked_once_at_the_start(fresh, github, issuer, clock):
    async with running(fresh, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        await bot.wait(600)
        asked = [call for call in github.calls if call.path == f"/repos/{UPSTREAM}"]
        assert len(asked) == 1
        assert await statuses(bot, PATHS) == dict.fromkeys(PATHS, 200)


async def test_the_allowlist_of_a_repository_of_unknown_visibility_is_not_named(fresh, github, issuer, clock):
    github.add_repo(CONFIG)
    github.set_file(CONFIG, "allowlist.yml", ALLOWLIST + "L9: nonsense\n")
    remote = replace(fresh, allowlist=SOURCE)
    async with bot_without_visibility(remote, github, issuer, clock, CONFIG) as bot:
        assert CONFIG not in str(await bot.get("/readyz"))
        assert CONFIG in str(await bot.get("/readyz", headers=TOKEN))
        github.faults.clear()
        await bot.wait(90)
        assert CONFIG in str(await bot.get("/readyz"))


async def test_who_installed_the_app_is_for_operators_only(bot):
    installation = {"id": 99, "account": {"login": "octo", "id": 5}, "permissions": {"checks": "write"}}
    await bot.send("installation", {"action": "created", "installation": installation})
    await bot.settle()
    for path in ("/api/records/installation/-/-", "/api/records/installation/-/-/99"):
        status, answer = await bot.get(path)
        assert (status, answer["error"]) == (401, "unauthorized")
        assert (await bot.get(path, headers=TOKEN))[0] == 200
    for path in ("/api/records/issue/-/-", "/api/records/installation/octo/thing"):
        assert (await bot.get(path))[0] == 401, path
