"""Two Apps, one for upstream and one for the backends: is everything still said and done once?"""

from __future__ import annotations

import json

import pytest

from tests.harness import L1, L2, L3, L4, SECRET, UPSTREAM, UPSTREAM_ID, make_settings, running, sign

pytestmark = pytest.mark.logic


OTHER = "the other App's secret"


@pytest.fixture
async def two(github, issuer, clock, tmp_path, database_url, app_key):
    """A bot with two Apps, both of them installed on upstream."""
    second = github.register_app(
        webhook_url=None, webhook_secret=OTHER, slug="ootbot-relay", private_key_pem=app_key
    )
    github.install(UPSTREAM, second)
    settings = make_settings(
        github=github, issuer=issuer, app=github.app, folder=tmp_path, database_url=database_url,
        relay_app_id=second.app_id, relay_private_key=second.private_key_pem, relay_webhook_secret=(OTHER,),
    )  # fmt: skip
    async with running(settings, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        second.webhook_url = bot.app.webhook_url
        bot.second = second
        yield bot


async def test_a_pull_request_both_apps_are_told_of_is_relayed_once(two, github):
    for name in (L1, L2, L3, L4):
        github.install(name, two.second)
    pull = await github.open_pull(UPSTREAM)
    await two.settle()
    told = [sent for sent in github.deliveries if sent.event == "pull_request"]
    assert {sent.app.app_id for sent in told} == {two.app.app_id, two.second.app_id}
    assert {sent.status_code for sent in told} == {202}
    assert len({sent.guid for sent in told}) == 1, "GitHub's GUID is the event's, not the App's"
    assert sorted(one.repo.full_name for one in github.dispatches) == sorted([L1, L2, L3, L4])
    assert two.checks(UPSTREAM, pull.head_sha)["oot / gate"][0] == "in_progress"


@pytest.mark.parametrize("target", ["first", "second", None])
@pytest.mark.parametrize("signed_by", ["first", "second"])
async def test_each_apps_secret_opens_its_own_door_only(two, target, signed_by):
    apps = {"first": str(two.app.app_id), "second": str(two.second.app_id), None: None}
    secrets = {"first": SECRET, "second": OTHER}
    body = json.dumps(
        {"action": "created", "repository": {"id": UPSTREAM_ID, "full_name": UPSTREAM}}
    ).encode()
    headers = {
        "X-GitHub-Hook-Installation-Target-ID": apps[target],
        "X-Hub-Signature-256": sign(body, secrets[signed_by]),
    }
    status, _ = await two.send("star", None, body=body, headers=headers)
    assert status == (202 if target in {signed_by, None} else 401)
