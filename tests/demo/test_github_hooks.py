"""Whom does the simulated GitHub tell what, and what does it log? Webhooks and their deliveries."""

from __future__ import annotations

import hashlib
import hmac
import json

from bot.demo.github.records import Event
from tests.demo.desk import (
    HOUR,
    KEY,
    SECRET,
    UPSTREAM,
    listening,
)


async def test_webhooks_are_signed_over_the_bytes_that_are_sent(desk, pull):
    headers, body = desk.listener.got[0]
    digest = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    assert headers["X-Hub-Signature-256"] == f"sha256={digest}"
    assert headers["X-Hub-Signature"].startswith("sha1=")
    assert headers["X-GitHub-Event"] == "pull_request"
    assert headers["X-GitHub-Hook-Installation-Target-ID"] == str(desk.app.app_id)
    assert headers["X-GitHub-Hook-Installation-Target-Type"] == "integration"
    assert headers["User-Agent"].startswith("GitHub-Hookshot/")
    assert headers["Content-Type"] == "application/json"
    payload = json.loads(body)
    assert payload["pull_request"]["head"]["sha"] == pull.head_sha
    assert payload["pull_request"]["head"]["repo"]["full_name"] == "octocat/project"
    assert payload["pull_request"]["base"]["repo"]["full_name"] == UPSTREAM
    assert payload["installation"]["id"] == desk.installation().id
    assert len(body) > 10_000


async def test_a_pull_requests_life_is_told_step_by_step(desk, pull):
    github = desk.github
    await github.push_commit(pull)
    await github.label(pull, "oot/npu")
    await github.unlabel(pull, "oot/npu")
    await github.edit_title(pull, "Better")
    await github.close(pull)
    await github.reopen(pull)
    await github.merge(pull)
    assert desk.listener.events == [
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


async def test_one_guid_reaches_every_app_that_is_subscribed_and_permitted(desk):
    async with listening() as door:
        for slug, permissions in (("other", {"pull_requests": "read"}), ("blind", {})):
            app = desk.github.register_app(
                webhook_url=f"{door.url}",
                webhook_secret="s",
                permissions=permissions,
                slug=slug,
                private_key_pem=KEY,
            )
            desk.github.install(UPSTREAM, app)
        await desk.github.open_pull(UPSTREAM)
        await desk.github.push(UPSTREAM)
    assert door.events == ["pull_request.opened"]
    ours = desk.listener.got[0][0]["X-GitHub-Delivery"]
    assert door.got[0][0]["X-GitHub-Delivery"] == ours


async def test_every_event_an_app_may_subscribe_to_reaches_it(desk):
    repo = desk.github.world.repo(UPSTREAM)
    for name in desk.app.events:
        await desk.github.hooks.emit(Event(name=name, action="made", repo=repo, sender="alice", body={}))
    assert desk.listener.events == [f"{name}.made" for name in desk.app.events]


async def test_failed_deliveries_are_logged_never_retried_and_redelivered_on_request(desk):
    desk.listener.status = 503
    await desk.github.open_pull(UPSTREAM)
    assert len(desk.listener.got) == 1
    token = desk.jwt()
    _, rows, _ = await desk.call("GET", "/app/hook/deliveries", token=token)
    assert [(row["status_code"], row["redelivery"]) for row in rows] == [(503, False)]
    desk.listener.status = 202
    path = f"/app/hook/deliveries/{rows[0]['id']}"
    assert (await desk.call("POST", f"{path}/attempts", token=token))[0] == 202
    await desk.github.settled()
    _, after, _ = await desk.call("GET", "/app/hook/deliveries", token=token)
    assert [(row["status"], row["redelivery"]) for row in after] == [
        ("OK", True),
        ("Invalid HTTP Response: 503", False),
    ]
    assert len({row["guid"] for row in after}) == 1
    assert desk.listener.got[0][1] == desk.listener.got[1][1]
    _, detail, _ = await desk.call("GET", path, token=token)
    assert detail["request"]["payload"] == json.loads(desk.listener.got[0][1])
    assert detail["request"]["headers"]["X-GitHub-Event"] == "pull_request"


async def test_an_unreachable_app_is_a_row_in_the_log(desk):
    desk.app.webhook_url = "http://127.0.0.1:9/hook"
    await desk.github.open_pull(UPSTREAM)
    assert [(each.status_code, each.ok) for each in desk.github.deliveries] == [(502, False)]


async def test_the_delivery_log_is_paged_by_cursor_and_forgets_after_three_days(desk):
    for number in range(5):
        await desk.github.deliver("ping", {"zen": number})
    token, path, seen = desk.jwt(), "/app/hook/deliveries?per_page=2", []
    while path:
        _, rows, headers = await desk.call("GET", path, token=token)
        seen += [row["id"] for row in rows]
        path = headers.get("Link", "").partition("<")[2].partition(">")[0]
    assert seen == [each.id for each in reversed(desk.github.deliveries)]
    desk.clock.ms += 3 * 24 * HOUR + 1
    assert (await desk.call("GET", "/app/hook/deliveries", token=desk.jwt()))[1] == []


async def test_deliveries_get_lost_on_demand(desk):
    faults = desk.github.faults
    faults.add(method="HOOK", path=r"^pull_request\.opened$", drop=True)
    await desk.github.open_pull(UPSTREAM)
    assert (desk.github.deliveries, desk.listener.got) == ([], [])
    faults.add(method="HOOK", path=r"^pull_request\.opened$", when="before")
    await desk.github.open_pull(UPSTREAM)
    assert (len(desk.github.deliveries), desk.listener.got) == (1, [])
    faults.add(method="HOOK", path=r"^pull_request\.opened$", when="after")
    await desk.github.open_pull(UPSTREAM)
    assert (len(desk.listener.got), desk.github.deliveries[-1].ok) == (1, False)


async def test_a_push_lists_its_commits_and_writes_its_repositorys_times_as_numbers(desk):
    before = desk.github.world.repo(UPSTREAM).branches["main"]
    after = await desk.github.push(UPSTREAM, files={"README.md": "new", "a.py": "1"})
    body = json.loads(desk.listener.got[0][1])
    assert (body["ref"], body["before"], body["after"]) == ("refs/heads/main", before, after)
    [commit] = body["commits"]
    assert (commit["id"], commit["added"], commit["modified"]) == (after, ["a.py"], ["README.md"])
    assert body["repository"]["pushed_at"] == desk.clock.now() // 1000


async def test_an_app_learns_of_its_installation(desk):
    repo = desk.github.add_repo("octo-org/other")
    await desk.github.announce_installation(desk.installation(), "added", repo)
    assert desk.listener.events == ["installation_repositories.added"]
    added = json.loads(desk.listener.got[0][1])["repositories_added"]
    assert [each["full_name"] for each in added] == ["octo-org/other"]
