"""A ping shows each step between us and a backend, and leaves no trace on pull requests and in numbers."""

import contextlib
import re
from itertools import count

import aiohttp
import pytest

from bot.demo.backends import Backends, PlannedJob
from tests.harness import L1, L3, UPSTREAM, report_body

_comments = count(5_000)


async def comment(bot, text="/oot ping", *, by="carol", repo=L3, on_pull=False, guid=None):
    """Somebody comments on an issue of a repository."""
    issue = {"number": 3, "user": {"login": "somebody"}} | ({"pull_request": {}} if on_pull else {})
    about = {"id": next(_comments), "body": text, "created_at": "2026-09-21T14:13:20Z",
             "updated_at": "2026-09-21T14:13:20Z", "user": {"login": by, "type": "User"}}  # fmt: skip
    repository = {"id": bot.github.state.repo(repo).id, "full_name": repo, "private": False}
    body = {"action": "created", "issue": issue, "comment": about, "repository": repository}
    status, _ = await bot.send("issue_comment", body, guid=guid)
    assert status in {200, 202}
    await bot.settle()


async def pings(bot):
    return [row["id"] for row in await bot.rows("oot_ping")]


async def steps(bot, repo=L3):
    """The steps of the newest ping, in a word each."""
    [identifier] = await pings(bot)
    status, found = await bot.get(f"/api/oot/backends/{repo}/pings/{identifier}")
    assert status == 200
    return {step["name"]: step["state"] for step in found["steps"]}, found


OPEN = {"allowlisted": "ok", "installed": "ok", "dispatch sent": "ok", "run started": "waiting",
        "token verified": "waiting", "report accepted": "waiting"}  # fmt: skip
DONE = dict.fromkeys(OPEN, "ok")


async def test_a_ping_is_sent_answered_and_shown_step_by_step(bot):
    await comment(bot)
    sent = bot.dispatch(L3)
    assert sent.event_type == "ping"
    assert sent.client_payload["event_type"] == "ping"
    assert sent.client_payload["delivery_id"].startswith("ping-")
    found, answer = await steps(bot)
    assert (found, answer["outcome"], answer["requested_by"]) == (OPEN, "waiting", "carol")

    assert (await bot.report(sent, status="in_progress", run_id="77"))[0] == 200
    assert (await steps(bot))[1]["words"] == "waiting: report accepted"
    assert (await bot.report(sent, run_id="77"))[0] == 200
    assert (await bot.report(sent, run_id="77"))[1] == {"ok": True, "status": "completed", "duplicate": True}
    found, answer = await steps(bot)
    assert (found, answer["words"]) == (DONE, "every step works")

    for table in ("oot_dispatch", "oot_workflow_job", "oot_check", "oot_command"):
        assert await bot.rows(table) == [], table
    status, page = await bot.get(f"/oot/{L3}")
    assert (status, "every step works" in page) == (200, True)
    assert (await bot.get(f"/oot/{L3}/pings/{answer['id']}"))[0] == 200
    assert (await bot.get(f"/oot/{L1}/pings/{answer['id']}"))[0] == 404


@pytest.mark.logic
@pytest.mark.parametrize(
    ("by", "text", "repo", "on_pull", "sent"),
    [
        ("writer", "/oot ping", L3, False, True),
        pytest.param("CAROL", "please:\n\n/oot ping", L3, True, True, marks=pytest.mark.nightly),
        ("mallory", "/oot ping", L3, False, False),
        ("carol", "> /oot ping", L3, False, False),
        pytest.param("carol", "/oot pong", L3, False, False, marks=pytest.mark.nightly),
        pytest.param("carol", "/oot ping", UPSTREAM, False, False, marks=pytest.mark.nightly),
    ],
)
async def test_who_may_ping_where(bot, github, by, text, repo, on_pull, sent):
    github.state.repo(L3).permissions["writer"] = "write"
    await comment(bot, text, by=by, repo=repo, on_pull=on_pull)
    assert bool(await pings(bot)) is sent


@pytest.mark.logic
async def test_the_same_comment_pings_once_and_a_backend_not_without_end(bot):
    guid = "4f0c0a52-0000-4000-8000-000000000001"
    for _ in range(2):
        async with bot.store.transaction() as tx:
            tx.enqueue("command", guid)
        await comment(bot, guid=guid)
    assert len(await pings(bot)) == 1
    for _ in range(25):
        await comment(bot)
    assert len(await pings(bot)) == 20


@pytest.mark.logic
async def test_a_token_that_is_not_accepted_is_shown(bot):
    await comment(bot)
    wrong = bot.issuer.mint(repository=L3, run_id="9", run_attempt=1, aud="somebody else")
    assert (await bot.report(bot.dispatch(L3), token=wrong))[0] == 401
    found, answer = await steps(bot)
    assert (found["token verified"], found["report accepted"]) == ("failed", "failed")
    assert "401 invalid_token" in answer["words"]

    assert (await bot.report(bot.dispatch(L3), run_id="77"))[0] == 200
    assert (await steps(bot))[0] == DONE


@pytest.mark.logic
async def test_a_refusal_is_kept_only_where_the_callback_token_is_that_of_the_ping(bot):
    await comment(bot)
    sent = bot.dispatch(L3)
    forged = report_body(sent, status="completed", conclusion="success", job="build", run_id="1", attempt=1)
    forged["callback_token"] = "a.b.c"
    token = bot.issuer.mint(repository=L3, run_id="1", run_attempt=1)
    status, said = await bot.request(
        "POST", "/api/oot/callback", json=forged, headers={"Authorization": f"Bearer {token}"}
    )
    assert (status, said["error"]) == (403, "forbidden")
    assert (await bot.rows("oot_ping"))[0]["refusal"] is None

    of_another = bot.issuer.mint(repository="org/l2-sim", run_id="1", run_attempt=1)
    assert (await bot.report(sent, token=of_another))[0] == 404
    assert (await steps(bot))[1]["words"].startswith("report accepted: 404 unknown_dispatch")


@pytest.mark.logic
async def test_without_the_app_nothing_is_sent_and_the_step_says_so(bot, github):
    github.uninstall(L3, github.app)
    await comment(bot)
    found, answer = await steps(bot)
    assert (found["installed"], found["run started"]) == ("failed", "failed")
    assert answer["outcome"] == "failed"


@pytest.mark.logic
async def test_a_run_that_never_comes_is_said_with_what_to_look_at(bot):
    await comment(bot)
    await bot.wait(700)
    found, answer = await steps(bot)
    assert (found["run started"], answer["outcome"]) == ("failed", "failed")
    assert "types: [..., ping]" in answer["words"]


@pytest.mark.logic
async def test_a_backend_that_runs_the_action_answers_a_ping_by_itself(bot, github, issuer, clock):
    backends = Backends(github, issuer, clock=clock)
    backend = backends.add(L3, PlannedJob(name="ping"))
    await comment(bot)
    await backends.settled()
    await bot.settle()
    await backends.stop()

    assert [report.exit_code for report in backend.reports] == [0, 0], backend.reports
    found, answer = await steps(bot)
    assert found == DONE
    [run] = [row for row in await bot.rows("workflow_run") if row["event"] == "repository_dispatch"]
    assert [step["words"] for step in answer["steps"] if step["name"] == "run started"] == [
        f"run {run['id']}"
    ]
    assert await bot.rows("oot_workflow_job") == []


@contextlib.asynccontextmanager
async def signed_in(bot):
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:
        await browser.post(f"{bot.url}/admin/sign-in", data={"token": bot.context.settings.admin_token})
        yield browser


async def test_the_operator_has_a_button(bot):
    async with signed_in(bot) as browser:
        async with browser.get(f"{bot.url}/oot/{L3}") as answer:
            form = (await answer.text()).partition('action="/admin/ping"')[2]
        key = re.search(r'name="key" value="([0-9a-f]{64})"', form)[1]
        async with browser.post(f"{bot.url}/admin/ping", data={"key": key, "backend": L3}) as answer:
            assert "Ping of" in await answer.text()
            assert answer.url.path.startswith(f"/oot/{L3}/pings/ping-")
        async with browser.post(f"{bot.url}/admin/ping", data={"key": key, "backend": "no/body"}) as answer:
            assert "no backend of that name" in await answer.text()
    await bot.settle()
    assert bot.dispatch(L3).event_type == "ping"
    assert "Sends a test dispatch" not in (await bot.get(f"/oot/{L3}"))[1]
    status, _ = await bot.request("POST", "/admin/ping", data={"backend": L3})
    assert status == 403
