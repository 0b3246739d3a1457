"""The simulated GitHub: webhooks, tokens, pages, faults."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json

import aiohttp
import pytest

from bot.demo.github import git
from bot.demo.github.auth import private_key
from bot.demo.github.models import Event
from tests.demo.app_client import (
    ANNOTATION,
    BUTTON,
    HOUR,
    KEY,
    OUTPUT,
    SECRET,
    UPSTREAM,
    check_run_body,
    webhook_receiver,
)
from tests.harness import ManualClock

# Webhooks of the simulated GitHub and their delivery log.


async def test_webhooks_are_signed_over_the_bytes_of_their_body(client, pull):
    headers, body = client.receiver.received[0]
    digest = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    assert headers["X-Hub-Signature-256"] == f"sha256={digest}"
    assert headers["X-Hub-Signature"].startswith("sha1=")
    assert headers["X-GitHub-Event"] == "pull_request"
    assert headers["X-GitHub-Hook-Installation-Target-ID"] == str(client.app.app_id)
    assert headers["X-GitHub-Hook-Installation-Target-Type"] == "integration"
    assert headers["User-Agent"].startswith("GitHub-Hookshot/")
    assert headers["Content-Type"] == "application/json"
    payload = json.loads(body)
    assert payload["pull_request"]["head"]["sha"] == pull.head_sha
    assert payload["pull_request"]["head"]["repo"]["full_name"] == "octocat/project"
    assert payload["pull_request"]["base"]["repo"]["full_name"] == UPSTREAM
    assert payload["installation"]["id"] == client.installation().id
    assert len(body) > 10_000


async def test_every_action_on_a_pull_request_sends_its_event(client, pull):
    github = client.github
    await github.push_commit(pull)
    await github.label(pull, "oot/npu")
    await github.unlabel(pull, "oot/npu")
    await github.edit_title(pull, "Better")
    await github.close(pull)
    await github.reopen(pull)
    await github.merge(pull)
    assert client.receiver.events == [
        "pull_request.opened",
        "pull_request.synchronize",
        "pull_request.labeled",
        "pull_request.unlabeled",
        "pull_request.edited",
        "pull_request.closed",
        "pull_request.reopened",
        "pull_request.closed",
        "push.None",
        "check_suite.requested",
    ]


async def test_an_event_has_one_guid_for_every_app_that_is_subscribed_and_permitted(client):
    async with webhook_receiver() as other_receiver:
        for slug, permissions in (("other", {"pull_requests": "read"}), ("blind", {})):
            app = client.github.register_app(
                webhook_url=f"{other_receiver.url}",
                webhook_secret="s",
                permissions=permissions,
                slug=slug,
                private_key_pem=KEY,
            )
            client.github.install(UPSTREAM, app)
        await client.github.open_pull(UPSTREAM)
        await client.github.push(UPSTREAM)
    assert other_receiver.events == ["pull_request.opened"]
    ours = client.receiver.received[0][0]["X-GitHub-Delivery"]
    assert other_receiver.received[0][0]["X-GitHub-Delivery"] == ours


async def test_every_event_an_app_may_subscribe_to_reaches_it(client):
    repo = client.github.state.repo(UPSTREAM)
    for name in client.app.events:
        await client.github.webhooks.emit(Event(name=name, action="made", repo=repo, sender="alice", body={}))
    assert client.receiver.events == [f"{name}.made" for name in client.app.events]


async def test_failed_deliveries_are_logged_never_retried_and_redelivered_on_request(client):
    client.receiver.status = 503
    await client.github.open_pull(UPSTREAM)
    assert len(client.receiver.received) == 1
    token = client.jwt()
    _, rows, _ = await client.call("GET", "/app/hook/deliveries", token=token)
    assert [(row["status_code"], row["redelivery"]) for row in rows] == [(503, False)]
    client.receiver.status = 202
    path = f"/app/hook/deliveries/{rows[0]['id']}"
    assert (await client.call("POST", f"{path}/attempts", token=token))[0] == 202
    await client.github.settled()
    _, after, _ = await client.call("GET", "/app/hook/deliveries", token=token)
    assert [(row["status"], row["redelivery"]) for row in after] == [
        ("OK", True),
        ("Invalid HTTP Response: 503", False),
    ]
    assert len({row["guid"] for row in after}) == 1
    assert client.receiver.received[0][1] == client.receiver.received[1][1]
    _, detail, _ = await client.call("GET", path, token=token)
    assert detail["request"]["payload"] == json.loads(client.receiver.received[0][1])
    assert detail["request"]["headers"]["X-GitHub-Event"] == "pull_request"


async def test_a_delivery_to_an_unreachable_app_is_logged_as_failed(client):
    client.app.webhook_url = "http://127.0.0.1:9/hook"
    await client.github.open_pull(UPSTREAM)
    assert [(each.status_code, each.ok) for each in client.github.deliveries] == [(502, False)]


async def test_the_delivery_log_is_paged_by_cursor_and_kept_for_three_days(client):
    for number in range(5):
        await client.github.deliver("ping", {"zen": str(number)})
    token, path, seen = client.jwt(), "/app/hook/deliveries?per_page=2", []
    while path:
        _, rows, headers = await client.call("GET", path, token=token)
        seen += [row["id"] for row in rows]
        path = headers.get("Link", "").partition("<")[2].partition(">")[0]
    assert seen == [each.id for each in reversed(client.github.deliveries)]
    client.clock.advance(3 * 24 * HOUR + 1)
    assert (await client.call("GET", "/app/hook/deliveries", token=client.jwt()))[1] == []


async def test_faults_can_lose_deliveries(client):
    faults = client.github.faults
    faults.add(method="HOOK", path=r"^pull_request\.opened$", drop=True)
    await client.github.open_pull(UPSTREAM)
    assert (client.github.deliveries, client.receiver.received) == ([], [])
    faults.add(method="HOOK", path=r"^pull_request\.opened$", when="before")
    await client.github.open_pull(UPSTREAM)
    assert (len(client.github.deliveries), client.receiver.received) == (1, [])
    faults.add(method="HOOK", path=r"^pull_request\.opened$", when="after")
    await client.github.open_pull(UPSTREAM)
    assert (len(client.receiver.received), client.github.deliveries[-1].ok) == (1, False)


async def test_a_push_lists_its_commits_and_has_its_repositorys_times_as_numbers(client):
    before = client.github.state.repo(UPSTREAM).branches["main"]
    after = await client.github.push(UPSTREAM, files={"README.md": "new", "a.py": "1"})
    body = json.loads(client.receiver.received[0][1])
    assert (body["ref"], body["before"], body["after"]) == ("refs/heads/main", before, after)
    [commit] = body["commits"]
    assert (commit["id"], commit["added"], commit["modified"]) == (after, ["a.py"], ["README.md"])
    assert body["repository"]["pushed_at"] == client.clock.now() // 1000


async def test_an_app_is_notified_of_its_installation(client):
    repo = client.github.add_repo("octo-org/other")
    await client.github.announce_installation(client.installation(), "added", repo)
    assert client.receiver.events == ["installation_repositories.added"]
    added = json.loads(client.receiver.received[0][1])["repositories_added"]
    assert [each["full_name"] for each in added] == ["octo-org/other"]


async def test_commits_that_a_forced_push_took_away_are_forgotten_in_time(client):
    github = client.github
    first = await github.push(UPSTREAM)
    old = await github.push(UPSTREAM)
    new = await github.push(UPSTREAM, onto=first)
    pushes = [json.loads(body) for _, body in client.receiver.received if "ref" in json.loads(body)]
    assert [(body["before"], body["after"], body["forced"]) for body in pushes[1:]] == [
        (first, old, False),
        (old, new, True),
    ]
    compared = f"/repos/{UPSTREAM}/compare/{old}...main"
    assert (await client.call("GET", compared))[1]["status"] == "diverged"
    assert git.forget_unreachable(github.state.repo(UPSTREAM)) == [old]
    assert (await client.call("GET", compared))[0] == 404
    assert (await client.call("GET", f"/repos/{UPSTREAM}/commits/{old}"))[0] == 422


# Tokens of Apps and installations on the simulated GitHub: who is let in, and for what.


APP_TOKENS = {
    "as documented": ({}, 200), "lifetime of ten minutes": ({"exp": 600}, 200),
    "lifetime over ten minutes": ({"exp": 601}, 401), "expired": ({"exp": 0}, 401),
    "no expiry": ({"exp": None}, 401), "issued within a minute from now": ({"iat": 60}, 200),
    "issued further in the future": ({"iat": 61}, 401), "no time of issue": ({"iat": None}, 401),
    "another issuer": ({"iss": "1"}, 401),
}  # fmt: skip


@pytest.mark.parametrize(("claims", "status"), APP_TOKENS.values(), ids=APP_TOKENS)
async def test_the_times_of_app_tokens_are_checked(client, claims, status):
    now = client.clock.now() // 1000
    absolute = {name: value + now if isinstance(value, int) else value for name, value in claims.items()}
    got, _, _ = await client.call("GET", "/app", token=client.jwt(**absolute))
    assert got == status


async def test_app_tokens_must_be_signed_with_the_apps_key_and_rs256(client):
    forged = client.jwt(key=private_key())
    symmetric = client.jwt(key="k" * 32, algorithm="HS256")
    assert (await client.call("GET", "/app", token=forged))[0] == 401
    assert (await client.call("GET", "/app", token=symmetric))[0] == 401
    assert (await client.call("GET", "/app", token="rubbish"))[0] == 401
    assert (await client.call("GET", "/app", token=client.jwt(iss=client.app.client_id)))[0] == 200


async def test_installation_tokens_look_like_githubs_and_expire_after_an_hour(client):
    token = await client.token()
    assert token.startswith("ghs_")
    assert len(token) == 520
    assert "." in token
    client.clock.advance(HOUR - 1)
    assert (await client.call("GET", f"/repos/{UPSTREAM}", token=token))[0] == 200
    client.clock.advance(1)
    assert (await client.call("GET", f"/repos/{UPSTREAM}", token=token))[0] == 401


async def test_a_token_covers_only_its_repositories(client):
    other = client.github.add_repo("octo-org/other")
    token = await client.token(repository_ids=[other.id])
    assert (await client.call("GET", f"/repos/{other.full_name}", token=token))[0] == 200
    assert (await client.call("GET", f"/repositories/{other.id}", token=token))[0] == 200
    assert (await client.call("GET", f"/repos/{UPSTREAM}", token=token))[0] == 404
    _, body, _ = await client.call("GET", "/installation/repositories", token=token)
    assert [each["full_name"] for each in body["repositories"]] == ["octo-org/other"]


async def test_a_restricted_token_has_only_its_permissions(client, pull):
    token = await client.token(permissions={"checks": "read"}, repositories=["project"])
    path = f"/repos/{UPSTREAM}/commits/{pull.head_sha}/check-runs"
    assert (await client.call("GET", path, token=token))[0] == 200
    status, body, headers = await client.call(
        "POST", f"/repos/{UPSTREAM}/check-runs", check_run_body(pull), token=token
    )
    assert (status, body["message"]) == (403, "Resource not accessible by integration")
    assert headers["X-Accepted-GitHub-Permissions"] == "checks=write"


@pytest.mark.parametrize(
    "restrictions",
    [{"repositories": ["nowhere"]}, {"repository_ids": [1]}, {"permissions": {"members": "read"}}],
    ids=str,
)
async def test_a_token_cannot_exceed_the_installation(client, restrictions):
    path = f"/app/installations/{client.installation().id}/access_tokens"
    assert (await client.call("POST", path, restrictions, token=client.jwt()))[0] == 422


async def test_archived_suspended_and_removed_repositories_refuse_writes(client):
    repo, token = client.github.state.repo(UPSTREAM), await client.token()
    path, body = f"/repos/{UPSTREAM}/dispatches", {"event_type": "go"}
    client.github.archive(repo)
    assert (await client.call("POST", path, body, token=token))[0] == 403
    client.github.archive(repo, archived=False)
    client.github.suspend(repo, client.app)
    assert (await client.call("POST", path, body, token=token))[0] == 403
    client.github.suspend(repo, client.app, suspended=False)
    client.github.add_repo("octo-org/other")
    client.github.uninstall(repo, client.app)
    assert (await client.call("POST", path, body, token=token))[0] == 404
    by_app = await client.call("GET", f"/repos/{UPSTREAM}/installation", token=client.jwt())
    assert by_app[0] == 404


CALLERS = {
    "no credentials": ("GET", "/app", "", 401),
    "an installation token where the App's is needed": ("GET", "/app", "installation", 401),
    "an App token where an installation's is needed": ("GET", f"/repos/{UPSTREAM}", "app", 403),
    "an unknown repository": ("GET", "/repos/octo-org/none", "installation", 404),
    "an unknown endpoint": ("GET", "/teapot", "installation", 404),
    "an unknown pull request": ("GET", f"/repos/{UPSTREAM}/pulls/9", "installation", 404),
    "an unknown commit": ("GET", f"/repos/{UPSTREAM}/commits/abc", "installation", 422),
    "a missing file": ("GET", f"/repos/{UPSTREAM}/contents/no", "installation", 404),
    "names in another case": ("GET", "/repos/OCTO-org/Project", "installation", 200),
}


@pytest.mark.parametrize(("method", "path", "who", "status"), CALLERS.values(), ids=CALLERS)
async def test_every_caller_gets_the_right_status(client, method, path, who, status):
    token = {"app": client.jwt(), "installation": await client.token(), "": ""}[who]
    assert (await client.call(method, path, token=token))[0] == status


# Web pages of the simulated GitHub.


async def get(client, path):
    async with client.session.get(client.github.url + path) as answer:
        return answer.status, await answer.text()


async def press(client, path, **form):
    async with client.session.post(client.github.url + path, data=form) as answer:
        return answer.status


async def test_a_pull_request_page_shows_conversation_and_checks(client, pull):
    text = (
        "<!-- hidden -->\n| a | b |\n|---|--:|\n| 1 | @alice |\n\n"
        "<details><summary>more</summary>\n\n**bold** `@bob`\n\n</details>"
        '<script>alert(1)</script><img src=x onerror="alert(1)">\n\n[x](javascript:alert(1))'
    )
    await client.github.comment(pull, text, by="octocat")
    body = check_run_body(pull, conclusion="failure", output={"title": "2 failed", "summary": "**which**"})
    await client.call("POST", f"/repos/{UPSTREAM}/check-runs", body)
    status, page = await get(client, f"/{UPSTREAM}/pull/{pull.number}")
    assert status == 200
    for shown in ("2 failed", "<strong>which</strong>", "oot / npu", "1 of 1 checks failed"):
        assert shown in page
    for kept in ("<td>1</td>", "<summary>more</summary>", "<strong>bold</strong>", ">@alice</a>"):
        assert kept in page
    assert "<code>@bob</code>" in page
    assert (await get(client, "/alice"))[0] == 200  # where the mention leads
    for gone in ("hidden", "<script", "onerror", 'href="javascript'):
        assert gone not in page


async def test_the_buttons_on_the_pages_work(client, pull):
    body = check_run_body(pull, conclusion="failure", actions=[BUTTON])
    _, made, _ = await client.call("POST", f"/repos/{UPSTREAM}/check-runs", body)
    await client.github.settled()
    here, run = f"/{UPSTREAM}/pull/{pull.number}", f"/{UPSTREAM}/runs/{made['id']}"
    before = len(client.receiver.received)
    assert await press(client, f"{run}/rerequest") == 200
    assert await press(client, f"{run}/action", identifier="again") == 200
    assert await press(client, f"{run}/action", identifier="dance") == 404
    assert await press(client, f"{here}/comment", text="/oot help", by="octocat") == 200
    assert await press(client, f"{here}/label", text="oot/npu") == 200
    assert await press(client, f"{here}/push") == 200
    last = client.github.deliveries[-1]
    assert await press(client, f"/_/deliveries/{last.id}/redeliver") == 200
    assert client.receiver.events[before:] == [
        "check_run.rerequested",
        "check_run.requested_action",
        "issue_comment.created",
        "pull_request.labeled",
        "pull_request.synchronize",
        "pull_request.synchronize",
    ]


async def test_every_page_opens_and_every_other_address_is_a_404(client, pull):
    run = await client.github.start_run(UPSTREAM, display_title="A run")
    await client.github.start_job(run, "test")
    noted = OUTPUT | {"text": "the full text", "annotations": [ANNOTATION]}
    _, made, _ = await client.call(
        "POST", f"/repos/{UPSTREAM}/check-runs", check_run_body(pull, output=noted)
    )
    for path, shown in {
        "/": UPSTREAM,
        f"/{UPSTREAM}": pull.title,
        f"/{UPSTREAM}/runs/{made['id']}": "the full text",
        f"/{UPSTREAM}/actions/runs/{run.id}": "A run",
        "/_/deliveries": "pull_request.opened",
        "/_/style.css": "prefers-color-scheme",
    }.items():
        status, page = await get(client, path)
        assert (status, shown in page) == (200, True), path
    for path in ("/no/where", f"/{UPSTREAM}/pull/99", f"/{UPSTREAM}/runs/x"):
        assert (await get(client, path))[0] == 404


async def test_forms_of_other_sites_are_refused(client, pull):
    url = f"{client.github.url}/{UPSTREAM}/pull/{pull.number}/close"
    async with client.session.post(url, headers={"Origin": "http://evil.example"}) as answer:
        assert answer.status == 403
    assert pull.state == "open"


async def test_what_pages_of_the_bot_link_to_is_there(client, pull):
    github, first = client.github, pull.commits[0]
    await github.push_commit(pull)
    status, page = await get(client, f"/{UPSTREAM}/commit/{pull.head_sha}")
    assert status == 200
    assert f"#{pull.number} {pull.title}" in page
    assert f'href="/{UPSTREAM}/commit/{first}"' in page  # its parent
    for refs in (f"{first[:12]}...{pull.head_sha}", f"main...{pull.head_sha}", f"main...{pull.head_sha[:7]}"):
        status, page = await get(client, f"/{UPSTREAM}/compare/{refs}")
        assert (status, pull.head_sha in page) == (200, True)
    run = await github.start_run(UPSTREAM, event="push", name="pull")
    left = github.add_artifact(run, "reports", {"a.txt": b"1"})
    async with client.session.get(
        f"{github.url}/{UPSTREAM}/actions/runs/{run.id}/artifacts/{left.id}"
    ) as answer:
        assert (answer.content_type, await answer.read()) == ("application/zip", left.content)
    for gone in (
        f"commit/{'0' * 40}",
        "compare/main...nothing",
        f"actions/runs/{run.id + 1}/artifacts/{left.id}",
        f"actions/runs/{run.id}/artifacts/x",
    ):
        assert (await get(client, f"/{UPSTREAM}/{gone}"))[0] == 404, gone


async def test_an_issue_is_opened_with_what_the_address_suggests(client):
    here = f"/{UPSTREAM}/issues/new"
    status, page = await get(client, f"{here}?title=DISABLED+test_a&body=%3Cscript%3E&labels=a,b")
    assert (status, "DISABLED test_a" in page, "<script>" in page) == (200, True, False)
    assert await press(client, here, title="", body="") == 400
    assert await press(client, here, title="DISABLED test_a", body="", labels="a, b") == 200
    (issue,) = client.github.state.repo(UPSTREAM).issues.values()
    assert (issue.title, issue.labels) == ("DISABLED test_a", ["a", "b"])


async def test_new_numbers_are_those_that_no_past_pull_request_has(client, pull):
    repo = client.github.state.repo(UPSTREAM)
    repo.pulls[140] = pull
    again = await client.github.open_pull(UPSTREAM)
    assert (pull.number, again.number) == (1, 2)


# Fault injection in the simulated GitHub: lost responses, dropped connections, rate limits.


async def test_a_fault_before_prevents_the_call_and_a_fault_after_only_its_response(client, pull):
    path = f"/repos/{UPSTREAM}/issues/{pull.number}/comments"
    client.github.faults.add(method="POST", path="/comments$", when="before", status=502)
    assert (await client.call("POST", path, {"body": "one"}))[0] == 502
    assert client.github.comments(pull) == []
    client.github.faults.add(method="POST", path="/comments$", when="after", status=504)
    assert (await client.call("POST", path, {"body": "two"}))[0] == 504
    assert (await client.call("POST", path, {"body": "three"}))[0] == 201
    assert [each.body for each in client.github.comments(pull)] == ["two", "three"]
    posts = [each for each in client.github.calls if each.path.endswith("/comments")]
    assert [(each.status, each.faulted) for each in posts] == [(502, True), (504, True), (201, False)]


async def test_a_call_with_a_dropped_connection_takes_effect_only_with_after(client):
    path, body = f"/repos/{UPSTREAM}/dispatches", {"event_type": "go"}
    for when in ("before", "after"):
        client.github.faults.add(method="POST", path="/dispatches$", when=when, drop=True)
        with pytest.raises(aiohttp.ClientError):
            await client.call("POST", path, body)
    assert len(client.github.dispatches) == 1
    assert [each.status for each in client.github.calls if "dispatches" in each.path] == [0, 0]


async def test_a_call_takes_effect_even_if_the_caller_disconnects(client, pull):
    class WaitingClock(ManualClock):
        started, go = asyncio.Event(), asyncio.Event()

        async def sleep(self, seconds):
            self.started.set()
            await self.go.wait()

    clock = client.github.state.clock = WaitingClock()
    client.github.faults.add(method="POST", path="/comments$", when="after", status=None, delay=9)
    path = f"/repos/{UPSTREAM}/issues/{pull.number}/comments"
    caller = asyncio.create_task(client.call("POST", path, {"body": "late"}))
    await clock.started.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    clock.go.set()
    await client.call("GET", path)
    assert [each.body for each in client.github.comments(pull)] == ["late"]


async def test_faults_can_be_rate_limits_of_every_form(client):
    path = f"/repos/{UPSTREAM}"
    secondary = {"message": "You have exceeded a secondary rate limit."}
    faults = client.github.faults
    faults.add(path=f"^{path}$", status=403, headers={"Retry-After": "7"}, body=secondary)
    faults.add(path=f"^{path}$", status=429)
    faults.add(path=f"^{path}$", status=None, headers={"X-RateLimit-Remaining": "0"})
    answers = [await client.call("GET", path) for _ in range(4)]
    assert [status for status, _, _ in answers] == [403, 429, 200, 200]
    assert answers[0][1] == secondary
    assert answers[0][2]["Retry-After"] == "7"
    assert answers[2][2]["X-RateLimit-Remaining"] == "0"
    assert answers[3][2]["X-RateLimit-Remaining"] != "0"
