"""Webhooks of the simulated GitHub and their delivery log."""

from __future__ import annotations

import hashlib
import hmac
import json

from bot.demo.github import git
from bot.demo.github.models import Event
from tests.demo.app_client import (
    HOUR,
    KEY,
    SECRET,
    UPSTREAM,
    webhook_receiver,
)


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
