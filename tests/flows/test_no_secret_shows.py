"""Does a secret ever show? The real process at its most talkative, through good days and bad ones."""

from __future__ import annotations

import asyncio
import json
import sqlite3

import aiohttp
import pytest

from bot.core.clock import SystemClock
from tests import secret_markers
from tests.harness import L2, L4, SECRET, UPSTREAM, report_body, sign
from tests.process import ADMIN_TOKEN, PATIENCE, Process, options_for, until

RELAY_TOKEN = "a relay token of ours"
PAGES = ("/", "/oot", "/oot/levels", f"/oot/{L4}", "/oot/metrics", f"/{UPSTREAM}/pull/1", "/admin", "/api", "/nowhere",
         "/healthz", "/readyz", "/metrics", "/api/openapi.json", "/api/oot/summary", "/api/oot/allowlist",
         f"/api/oot/pulls/{UPSTREAM}/1", f"/api/oot/backends/{L4}", "/api/admin/tasks", "/api/admin/tasks?state=x")  # fmt: skip


@pytest.fixture
def clock():
    """The process's own: it is no part of this one."""
    return SystemClock()


class Ears:
    """Calls the bot, and keeps whatever it answers."""

    def __init__(self, http, url):
        self._http = http
        self._url = url
        self.heard: list[str] = []

    async def call(self, method, path, **options):
        async with self._http.request(method, self._url + path, **options) as answer:
            self.heard.append(
                f"{method} {path}: {answer.status} {dict(answer.headers)} {await answer.text()}"
            )
            return answer.status


async def everybody_calls(ears, github, issuer):
    """Every door, with good credentials, with bad ones, and with credentials in the wrong place."""
    dispatch = next(each for each in github.dispatches if each.repo.full_name == L4)
    body = report_body(dispatch, status="in_progress", conclusion=None, job="build", run_id="900", attempt=1)
    token = issuer.mint(repository=L4, run_id="900")
    other = issuer.mint(repository=L2, run_id="900")
    for bearer in (
        token,
        other,
        token[:-9],
        dispatch.client_payload["callback_token"],
        ADMIN_TOKEN,
        SECRET,
        "ootk_ab_cd",
    ):
        headers = {"Authorization": f"Bearer {bearer}"}
        await ears.call("POST", "/api/oot/callback", json=body, headers=headers)
        await ears.call("POST", "/api/oot/callback/batch", json={"reports": [body]}, headers=headers)
        await ears.call("POST", "/api/oot/callback", json=body | {"callback_token": token}, headers=headers)
        await ears.call("GET", "/api/admin/tasks", headers=headers)
        await ears.call("GET", f"/api/oot/summary?token={bearer[:10]}", headers=headers)
    for relay in (RELAY_TOKEN, ADMIN_TOKEN, "wrong"):
        envelope = {"trusted": {"verified_repo": L2}, "untrusted": {"callback_payload": body}}
        await ears.call("POST", "/api/oot/results", json=envelope, headers={"X-OOT-Relay-Token": relay})
        await ears.call("POST", "/api/oot/results", data=b"{", headers={"X-OOT-Relay-Token": relay})
    raw = b'{"zen": "x"}'
    for secret in (SECRET, "wrong"):
        await ears.call(
            "POST", "/api/github/webhooks", data=raw,
            headers={"X-GitHub-Event": "ping", "X-GitHub-Delivery": secret[:1], "X-Hub-Signature-256": sign(raw, secret)},
        )  # fmt: skip
    for path in PAGES:
        await ears.call("GET", path)
    admin = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
    for delivery in github.deliveries[:3]:
        await ears.call("GET", f"/api/admin/deliveries/{delivery.guid}", headers=admin)
        await ears.call("POST", f"/api/admin/deliveries/{delivery.guid}/replay", headers=admin)
    await ears.call("GET", "/api/admin/tasks?limit=500", headers=admin)


async def test_no_secret_shows_in_a_log_an_answer_a_page_or_a_metric(github, issuer, tmp_path, app_key):
    options = options_for(
        tmp_path, private_key=app_key, app_id=github.app.app_id, api_url=github.api_url, issuer=issuer
    )
    options |= {
        "LOG_LEVEL": "debug",
        "LOG_FORMAT": "json",
        "RELAY_TOKEN": RELAY_TOKEN,
        "WRITES_PER_MIN": "6000",
    }
    process = Process(tmp_path, **options)
    github.app.webhook_url = f"{process.url}/api/github/webhooks"
    ready = await process.start()
    await asyncio.wait_for(ready.wait(), PATIENCE)
    pull = await github.open_pull(UPSTREAM)
    await until(lambda: len({each.repo.full_name for each in github.dispatches}) == 4, what="the dispatches")
    async with aiohttp.ClientSession() as http:
        ears = Ears(http, process.url)
        await everybody_calls(ears, github, issuer)
        github.faults.add(path="access_tokens", status=401, times=5)
        github.faults.add(path="check-runs", status=403, times=5, body={"message": "Resource not accessible"})
        github.faults.add(path="dispatches", drop=True, times=5)
        issuer.outage = True
        await github.push_commit(pull)
        await until(
            lambda: len(process.said) > 10 and any("retried" in line for line in process.said), what="trouble"
        )
        with sqlite3.connect(tmp_path / "ootbot.db") as db:
            db.execute("ALTER TABLE oot_dispatch RENAME TO gone")
        db.close()
        await everybody_calls(ears, github, issuer)
        (tmp_path / "ootbot.db").rename(tmp_path / "away.db")
        await everybody_calls(ears, github, issuer)
    process.kill()
    await process.ended()
    assert any('"level": "error"' in line for line in process.said), "bad days have to be among them"
    assert {leak for text in (*process.said, *ears.heard) for leak in secret_markers.leaks(text)} == set()
    statuses = {text.split(": ")[1].split()[0] for text in ears.heard}
    assert {"200", "202", "400", "401", "403", "404", "503"} <= statuses
    the_lines_belong_to_something(process.said)


def the_lines_belong_to_something(said):
    """Every line is JSON; those of a request say which, those of a task say which and what caused it."""
    lines = [json.loads(line) for line in said if not line.startswith("ootbot ")]
    refused = [
        line for line in lines if line["event"] in {"refused", "a request failed", "store unavailable"}
    ]
    assert refused
    assert all(line["request"] and line["path"] for line in refused)
    retried = [
        line for line in lines if line["event"] in {"task will be retried", "task given up", "task failed"}
    ]
    assert retried
    assert all(line["task"] for line in retried)
    assert any(line.get("delivery") for line in retried)
    assert all({"event", "level", "timestamp"} <= line.keys() for line in lines)


def test_a_secret_would_be_noticed():
    token = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJlcw"
    for text in (
        f"Bearer {token}",
        "ghs_" + "a" * 36,
        "-----BEGIN RSA PRIVATE KEY-----\nMIIE",
        SECRET,
        "ootk_0123456789ab",
    ):
        assert secret_markers.leaks(f"... {text} ..."), text
    assert secret_markers.leaks("the App's webhook secret (WEBHOOK_SECRET)") == []
