"""What can somebody do who takes upstream's name, once upstream has left it?"""

from __future__ import annotations

import pytest

from tests.command import ootbot
from tests.console.doctor.examined import doctor
from tests.harness import L4, SECRET, UPSTREAM, replace, running
from tests.serving import SQLITE

ADMIN = {"Authorization": "Bearer an admin token of ours"}
ACCEPT = f"ootbot upstream accept {UPSTREAM}"


def take_over(github, *, private=False):
    """Rename upstream, and make another repository of its name, with the App on it."""
    repos = github.state.repos
    moved = repos[f"{UPSTREAM.partition('/')[0]}/moved"] = repos.pop(UPSTREAM)
    moved.name = "moved"
    return github.add_repo(UPSTREAM, private=private)


def calls_with_effect(github, since):
    """What GitHub did for us in a repository of upstream's name."""
    of_it = [call for call in github.calls[since:] if call.path.startswith(f"/repos/{UPSTREAM}/")]
    return [call for call in of_it if call.status < 300 and not call.path.endswith("/installation")]


async def test_a_repository_that_takes_upstreams_name_is_not_upstream(bot, github):
    mine = await github.open_pull(UPSTREAM, title="Ours")
    await bot.settle()
    took = take_over(github)
    bot.clock.advance(3600)  # no token of ours is good any more
    before, since = len(github.dispatches), len(github.calls)
    pull = await github.open_pull(UPSTREAM, author="mallory", title="Theirs")
    await github.comment(pull, "mallory", "/oot run tpu")
    await bot.wait(600)
    assert len(github.dispatches) == before
    assert calls_with_effect(github, since) == []
    parked = [row for row in await bot.rows("delivery") if row["state"] == "parked"]
    assert {row["repository_id"] for row in parked} == {took.id}
    assert all(ACCEPT in row["error"] for row in parked)
    _, page = await bot.get(f"/{UPSTREAM}/pull/{mine.number}")
    assert "Theirs" not in page


@pytest.mark.logic
async def test_results_of_a_private_upstream_stay_hidden_when_a_public_one_takes_its_name(bot, github):
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    await bot.report(bot.dispatch(L4))
    about = {"id": github.state.repo(UPSTREAM).id, "full_name": UPSTREAM, "private": True}
    await bot.send(
        "repository", {"action": "privatized", "repository": about | {"updated_at": "2026-10-01T00:00:00Z"}}
    )
    await bot.settle()
    took = take_over(github)
    added = [{"id": took.id, "full_name": UPSTREAM, "private": False}]
    installation = {"id": 77, "account": {"login": "pytorch", "id": 5}}
    body = {"action": "added", "installation": installation, "repositories_added": added}
    await bot.send("installation_repositories", body)
    await bot.settle()
    for path in (f"/{UPSTREAM}/pull/{pull.number}", f"/api/oot/pulls/{UPSTREAM}/{pull.number}", "/oot"):
        assert (await bot.get(path))[0] == 404, path
        assert (await bot.get(path, headers=ADMIN))[0] == 200, path


@pytest.mark.logic
async def test_the_operator_accepts_another_repository_and_nothing_was_lost(bot, github):
    took = take_over(github)
    await github.open_pull(UPSTREAM)
    await bot.settle()
    assert github.dispatches == []
    code, out, _ = await ootbot(bot, "upstream", "accept", UPSTREAM)
    assert code == 0
    assert f"repository {took.id}" in out
    assert "1 delivery is handled next" in out
    await bot.wait(60)
    assert bot.dispatch(L4).client_payload["payload"]["repository"]["id"] == took.id
    code, out, _ = await ootbot(bot, "upstream", "accept", UPSTREAM)
    assert (code, "is already" in out) == (0, True)


@pytest.mark.logic
@SQLITE
async def test_what_is_no_upstream_cannot_be_accepted(bot, github):
    code, _, err = await ootbot(bot, "upstream", "accept", L4)
    assert (code, "UPSTREAM_REPO" in err) == (2, True)
    github.state.repos.pop(UPSTREAM)
    code, _, err = await ootbot(bot, "upstream", "accept", UPSTREAM)
    assert (code, "404" in err) == (1, True)


@pytest.mark.logic
@SQLITE
async def test_doctor_tells_of_another_repository_of_that_name(bot, github, tmp_path):
    settings = bot.context.settings
    options = {
        "APP_ID": str(settings.app_id), "PRIVATE_KEY": settings.private_key, "WEBHOOK_SECRET": SECRET,
        "UPSTREAM_REPO": UPSTREAM, "ALLOWLIST": settings.allowlist, "GITHUB_API_URL": settings.github_api_url,
        "DATA_DIR": str(settings.data_dir),
    }  # fmt: skip
    _, found, _ = await doctor(options, tmp_path)
    assert [one["status"] for one in found["upstream's id"]] == ["ok"]
    take_over(github)
    _, found, _ = await doctor(options, tmp_path)
    (said,) = found["upstream's id"]
    assert (said["status"], ACCEPT in said["next"]) == ("error", True)


@pytest.mark.logic
async def test_without_githubs_word_the_first_event_says_which_repository_upstream_is(
    settings, github, issuer, clock
):
    (settings.data_dir / "ootbot.db").unlink(missing_ok=True)
    github.faults.add(method="GET", path=f"^/repos/{UPSTREAM}$", status=500, times=1000)
    async with running(settings, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        await github.open_pull(UPSTREAM)
        await bot.settle()
        assert len(github.dispatches) == 4
        take_over(github)
        await github.open_pull(UPSTREAM, author="mallory")
        await bot.settle()
        assert len(github.dispatches) == 4


@pytest.mark.logic
async def test_whoever_takes_the_name_of_the_allowlists_repository_lists_nobody(
    settings, github, issuer, clock
):
    github.add_repo("org/config")
    github.set_file("org/config", "allowlist.yml", f"L4: [{L4}]")
    remote = replace(settings, allowlist="org/config:allowlist.yml")
    async with running(remote, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        github.state.repos["org/moved"] = github.state.repos.pop("org/config")
        github.add_repo("org/config")
        github.set_file("org/config", "allowlist.yml", "L4: [mallory/backend]")
        await bot.wait(3700)
        _, listed = await bot.get("/api/oot/allowlist", headers=ADMIN)
        assert [entry["repo"] for entry in listed["entries"]] == [L4]
