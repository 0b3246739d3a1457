"""Nothing of a private repository is told without the admin token; nor while nobody has told us whether it is private."""

import contextlib
from dataclasses import replace

import pytest

from tests.harness import ALLOWLIST, L4, UPSTREAM, running
from tests.oot.reports.reporting import OPENED
from tests.pages.reading import ADMIN, read, said_to_be

EVERYTHING = (
    "/oot", "/oot/levels", "/oot/metrics", "/api/oot/levels", "/api/oot/metrics", f"/api/oot/backends/{L4}/jobs.csv",
    f"/oot/{L4}", f"/{UPSTREAM}/pull/1", "/api/oot/summary", f"/api/oot/backends/{L4}",
    f"/api/oot/pulls/{UPSTREAM}/1", "/api/oot/allowlist", f"/api/records/pull_request/{UPSTREAM}",
    f"/api/records/pull_request/{UPSTREAM}/1",
)  # fmt: skip


@pytest.mark.logic
async def test_everything_of_a_private_upstream_is_404_without_the_admin_token(bot, github, pull):
    await bot.report(bot.dispatch(L4))
    for path in EVERYTHING:
        assert (await bot.get(path))[0] == 200, path
    await said_to_be(bot, github, private=True, at=1)
    wrong = (
        "Bearer wrong",
        "Bearer",
        "an admin token of ours",
        "Basic an admin token of ours",
        "Bearer an admin token of ours!",
    )
    for path in EVERYTHING:
        assert (await bot.get(path))[0] == 404, path
        for header in wrong:
            assert (await bot.get(path, headers={"Authorization": header}))[0] == 404, (path, header)
        assert (await bot.get(path, headers=ADMIN))[0] == 200, path
    await said_to_be(bot, github, private=False, at=2)
    for path in EVERYTHING:
        assert (await bot.get(path))[0] == 200, path


@pytest.mark.logic
async def test_a_private_repository_looks_like_one_nobody_knows(bot, github, pull):
    await said_to_be(bot, github, private=True)
    commit = await bot.get(f"/{UPSTREAM}/commit/{pull.head_sha}")
    assert commit[0] == 404
    for path in (
        "/{}/pull/1",
        "/api/oot/pulls/{}/1",
        "/api/records/issue/{}/1",
        "/api/records/pull_request/{}",
    ):
        private = await bot.get(path.format(UPSTREAM))
        unknown = await bot.get(path.format("no/body"))
        assert str(private).replace(UPSTREAM, "no/body") == str(unknown)


@pytest.mark.logic
async def test_a_renamed_private_repository_stays_hidden_under_its_old_name(bot, github, pull):
    repo = github.state.repo(UPSTREAM)
    payload = {
        "action": "renamed",
        "repository": {
            "id": repo.id,
            "full_name": "new/name",
            "private": True,
            "updated_at": "2026-10-01T00:00:00Z",
        },
    }
    await bot.send("repository", payload)
    await bot.settle()
    assert (await bot.get(f"/api/records/pull_request/{UPSTREAM}/{pull.number}"))[0] == 404
    assert (await bot.get(f"/api/records/pull_request/{UPSTREAM}"))[0] == 404
    assert (await bot.get(f"/{UPSTREAM}/pull/{pull.number}"))[0] == 404


@pytest.mark.logic
async def test_results_for_a_private_upstream_stay_hidden_after_it_was_renamed(bot, github, pull):
    await bot.report(bot.dispatch(L4), conclusion="failure")
    repo = github.state.repo(UPSTREAM)
    about = {"id": repo.id, "full_name": "new/name", "private": True, "updated_at": "2026-10-01T00:00:00Z"}
    await bot.send("repository", {"action": "renamed", "repository": about})
    await bot.settle()
    _, shown = await bot.get(f"/api/oot/backends/{L4}")
    assert "jobs" not in shown or shown["jobs"] == []
    _, page = await bot.get(f"/oot/{L4}")
    assert UPSTREAM not in page


@pytest.mark.logic
async def test_a_public_repository_of_a_private_ones_old_name_tells_nothing_of_it(bot, github):
    other = "some/thing"
    private, public = github.add_repo(other).id, 999
    pull = await github.open_pull(other)
    await bot.settle()
    about = {"id": private, "full_name": "new/name", "private": True, "updated_at": "2026-10-01T00:00:00Z"}
    await bot.send("repository", {"action": "renamed", "repository": about})
    await bot.send("issues", OPENED | {"repository": {"id": private, "full_name": other, "private": True}})
    about = {"id": public, "full_name": other, "private": False, "updated_at": "2026-10-02T00:00:00Z"}
    await bot.send("repository", {"action": "created", "repository": about})
    await bot.send("issues", OPENED | {"repository": about})
    await bot.settle()
    rows = (await read(bot, f"/api/records/issue/{other}"))["rows"]
    assert [row["repository_id"] for row in rows] == [public]
    number = rows[0]["number"]
    assert (await read(bot, f"/api/records/issue/{other}/{number}"))["repository_id"] == public
    for path in (f"/api/records/pull_request/{other}/{pull.number}", f"/{other}/pull/{pull.number}"):
        assert (await bot.get(path))[0] == 404
    after = await read(bot, f"/api/records/pull_request/{other}?limit=1&before={10**15}")
    assert (after["rows"], after["next"]) == ([], None)  # not even how many there are


@pytest.mark.parametrize("action", ["renamed", "transferred", "archived"])
async def test_whatever_a_repository_is_called_now_its_rows_are_found_and_keep_its_id(
    bot, github, pull, action
):
    repo = github.state.repo(UPSTREAM)
    about = {"id": repo.id, "full_name": "New/Name", "private": False, "updated_at": "2026-10-01T00:00:00Z"}
    await bot.send("repository", {"action": action, "repository": about})
    await bot.send("issues", OPENED | {"repository": about})
    await bot.settle()
    for name in (UPSTREAM, "new/name"):
        _, found = await bot.get(f"/api/records/pull_request/{name}/{pull.number}")
        assert (found["repository_id"], found["number"]) == (repo.id, pull.number)
        _, page = await bot.get(f"/api/records/issue/{name}")
        assert [row["repo"] for row in page["rows"]] == ["New/Name"]


@pytest.mark.logic
async def test_a_deleted_repository_keeps_a_tombstone_and_its_rows(bot, github, pull):
    repo = github.state.repo(UPSTREAM)
    about = {"id": repo.id, "full_name": UPSTREAM, "private": False, "updated_at": "2026-10-01T00:00:00Z"}
    await bot.send("repository", {"action": "deleted", "repository": about})
    await bot.settle()
    assert (await bot.get(f"/api/records/repository/{UPSTREAM}/{repo.id}"))[1]["deleted_at"]
    assert (await bot.get(f"/api/records/pull_request/{UPSTREAM}/{pull.number}"))[0] == 200


@pytest.mark.logic
async def test_without_an_admin_token_nothing_private_is_ever_shown(settings, github, issuer, clock):
    closed = replace(settings, admin_token=None)
    async with running(closed, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        await github.open_pull(UPSTREAM)
        await bot.settle()
        await said_to_be(bot, github, private=True)
        for header in ("Bearer ", "Bearer None", "Bearer an admin token of ours"):
            status, _ = await bot.get(f"/{UPSTREAM}/pull/1", headers={"Authorization": header})
            assert status == 404


@pytest.mark.logic
async def test_results_for_a_private_upstream_are_not_counted_for_strangers(settings, github, issuer, clock):
    github.add_repo("open/one")
    two = replace(settings, upstream_repo=(UPSTREAM, "open/one"))
    async with running(two, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        await github.open_pull(UPSTREAM)
        await bot.settle()
        await bot.report(bot.dispatch(L4))
        await said_to_be(bot, github, private=True)
        for headers, count in (({}, 0), (ADMIN, 1)):
            body = await read(bot, f"/api/oot/backends/{L4}", headers=headers)
            assert (body["backend"]["runs"], len(body["jobs"])) == (count, count)
            tpu = (await read(bot, "/api/oot/summary", headers=headers))["backends"][0]
            assert (tpu["repo"], tpu["runs"]) == (L4, count)
        assert UPSTREAM not in (await bot.get(f"/oot/{L4}"))[1]


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


@pytest.mark.logic
async def test_an_upstream_of_unknown_visibility_is_shown_to_operators_only(fresh, github, issuer, clock):
    async with bot_without_visibility(fresh, github, issuer, clock, UPSTREAM) as bot:
        assert await statuses(bot, PATHS) == dict.fromkeys(PATHS, 404)
        assert await statuses(bot, PATHS, headers=TOKEN) == dict.fromkeys(PATHS, 200)
        github.faults.clear()
        await bot.wait(90)  # it is asked again every minute
        assert await statuses(bot, PATHS) == dict.fromkeys(PATHS, 200)


@pytest.mark.logic
async def test_an_upstream_that_github_calls_private_is_hidden_before_any_event(fresh, github, issuer, clock):
    github.add_repo("veiled/plans", private=True)
    veiled = replace(fresh, upstream_repo=("veiled/plans",))
    async with running(veiled, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        assert await statuses(bot, PATHS) == dict.fromkeys(PATHS, 404)


@pytest.mark.logic
async def test_github_is_asked_once_at_the_start(fresh, github, issuer, clock):
    async with running(fresh, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        await bot.wait(600)
        asked = [call for call in github.calls if call.path == f"/repos/{UPSTREAM}"]
        assert len(asked) == 1
        assert await statuses(bot, PATHS) == dict.fromkeys(PATHS, 200)


@pytest.mark.logic
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


@pytest.mark.logic
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
