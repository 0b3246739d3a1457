"""Is upstream one repository, whatever its name is, and whoever takes that name?"""

from __future__ import annotations

import aiohttp
import pytest

from bot.app import make_app
from bot.demo.github import payloads
from bot.oot.publish import rows
from tests.command import ootbot
from tests.console.doctor.examined import doctor
from tests.harness import L4, SECRET, UPSTREAM, replace, running
from tests.oot.reports.test_relay_endpoint import TOKEN, envelope, relay
from tests.ops.test_admin_pages import sign_in
from tests.serving import SQLITE, serving

# Upstream is renamed or transferred: that is said, and what was missed is dispatched once the settings have its name.


MOVED = "pytorch/moved"


@pytest.fixture
def start(settings, github, issuer, clock):
    """Start a bot on the same database, whose settings name upstream so."""

    def begin(upstream):
        chosen = replace(settings, upstream_repo=(upstream,))
        return running(chosen, github=github, issuer=issuer, app=github.app, clock=clock)

    return begin


def rename(github):
    """Rename upstream."""
    moved = github.state.repos[MOVED] = github.state.repos.pop(UPSTREAM)
    moved.name = MOVED.partition("/")[2]


def dispatched(github):
    payloads = [one.client_payload["payload"] for one in github.dispatches if one.repo.full_name == L4]
    return [payload["number"] for payload in payloads]


@SQLITE
async def test_that_upstream_was_renamed_is_said_until_the_settings_have_its_name(
    start, github, clock, caplog
):
    async with start(UPSTREAM) as bot:
        await github.open_pull(UPSTREAM)
        await bot.settle()
        rename(github)
        clock.advance(60)
        await github.open_pull(MOVED)
        await bot.settle()
        status, ready = await bot.get("/readyz")
        words = f"{UPSTREAM} is {MOVED} now, and nothing of it is dispatched: write its new name into UPSTREAM_REPO"
        assert (status, ready["missing"]) == (503, [f"upstream: {words}"])
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:
            assert words in await sign_in(bot, browser)
    async with start(MOVED) as bot:
        await bot.wait(700)
        status, ready = await bot.get("/readyz")
        assert (status, ready["notes"]) == (200, [])


@SQLITE
async def test_that_upstream_is_out_of_reach_is_said(start, github, clock):
    """It was transferred to an account without the App: no delivery tells."""
    async with start(UPSTREAM) as bot:
        await github.open_pull(UPSTREAM)
        await bot.wait(700)
        assert (await bot.get("/readyz"))[1]["notes"] == []
        rename(github)
        await bot.wait(3700)
        _, ready = await bot.get("/readyz")
        assert any(note.startswith(f"upstream: {UPSTREAM} cannot be reached: ") for note in ready["notes"])


@SQLITE
async def test_what_was_opened_while_the_settings_had_the_old_name_is_dispatched_later(start, github, clock):
    async with start(UPSTREAM) as bot:
        before = await github.open_pull(UPSTREAM)
        await bot.settle()
        rename(github)
        clock.advance(60)
        missed = await github.open_pull(MOVED)
        await bot.wait(700)
        assert dispatched(github) == [before.number]
    async with start(MOVED) as bot:
        await bot.wait(1300)
        assert dispatched(github).count(missed.number) == 1


# What can somebody do who takes upstream's name, once upstream has left it?


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


# Is upstream one repository, however its name is spelled? GitHub leads every spelling to the same one.


SHOUTED = UPSTREAM.upper()
GATE = "oot / gate"
KEYED = ("oot_dispatch", "oot_check", "oot_comment", "oot_workflow_job", "oot_merge_group")


async def failed_gate(bot, github):
    """A pull request whose backend failed, and whose gate says so."""
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    await bot.report(bot.dispatch(L4), conclusion="failure")
    await bot.settle(horizon=30)
    assert bot.checks(UPSTREAM, pull.head_sha)[GATE][:2] == ("completed", "failure")
    return pull


async def deliver(bot, github, pull, action, spelled, **extra):
    """Deliver an event of a pull request that spells upstream its own way."""
    event = payloads.pull_request(github.state, pull, action, "alice", **extra)
    body = payloads.envelope(github.state, event, github.state.installed_on(pull.repo)[0])
    body["repository"]["full_name"] = spelled
    assert (await bot.send("pull_request", body))[0] == 202
    await bot.settle(horizon=30)


async def spellings(bot):
    """How rows of ours spell upstream, and what they are about."""
    found = {row["upstream_repo"] for table in KEYED for row in await bot.rows(table)}
    return found | {row["key"].partition("#")[0] for row in await bot.rows("task") if "#" in row["key"]}


async def labelled(bot, github, pull, spelled):
    """Put a label on under another spelling; a finished gate stays finished."""
    bot.clock.advance(60)
    await deliver(bot, github, pull, "labeled", spelled, label={"name": "ciflow/oot/npu"})
    assert bot.checks(UPSTREAM, pull.head_sha)[GATE][:2] == ("completed", "failure")


@pytest.mark.logic
async def test_a_delivery_that_spells_upstream_otherwise_is_about_the_same_pull_request(bot, github):
    pull = await failed_gate(bot, github)
    await labelled(bot, github, pull, SHOUTED)
    bot.clock.advance(60)
    await deliver(bot, github, pull, "closed", SHOUTED)
    assert await spellings(bot) == {UPSTREAM}
    async with bot.store.read() as tx:
        assert len(await rows.checks_of(tx, UPSTREAM, pull.number)) == 2


@pytest.mark.logic
async def test_settings_that_spell_upstream_otherwise_change_nothing(start, github):
    async with start(SHOUTED) as bot:
        pull = await failed_gate(bot, github)
        assert await spellings(bot) == {SHOUTED}
    async with start(UPSTREAM) as bot:
        await labelled(bot, github, pull, UPSTREAM)
        await bot.wait(3700)  # what is listed at GitHub is spelled its way
        assert bot.checks(UPSTREAM, pull.head_sha)[GATE][:2] == ("completed", "failure")
        assert await spellings(bot) == {SHOUTED}
        for path in (f"/{UPSTREAM}/pull/1", f"/api/oot/pulls/{UPSTREAM}/1", f"/{SHOUTED}/pull/1"):
            status, page = await bot.get(path)
            assert (status, L4 in str(page)) == (200, True), path


async def test_what_an_outside_relay_says_of_upstream_is_shown_with_the_rest(bot, github):
    pull = await failed_gate(bot, github)
    passed_on = envelope(number=pull.number, sha=pull.head_sha)
    passed_on["untrusted"]["callback_payload"]["payload"]["repository"]["full_name"] = SHOUTED
    open_to_relays = replace(bot.context, settings=replace(bot.context.settings, relay_token=TOKEN))
    async with serving(bot, make_app(open_to_relays)) as door:
        assert (await relay(door, passed_on))[0] == 200
    assert await spellings(bot) == {UPSTREAM}
    _, page = await bot.get(f"/{UPSTREAM}/pull/{pull.number}")
    assert "far/backend" in page
