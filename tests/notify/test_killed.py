"""A bot that is killed while it sends a notice sends it again, with the id by which the receiver knows it."""

from __future__ import annotations

import json

import pytest

from bot.core.clock import SystemClock
from tests.harness import UPSTREAM
from tests.notify.receiving import SECRET
from tests.process import Process, options_for, until


@pytest.fixture
def clock():
    return SystemClock()


@pytest.mark.nightly
async def test_after_a_kill_each_notice_is_known_by_its_id(github, inbox, tmp_path, app_key):
    table = {
        "name": "team",
        "url": f"{inbox.url}/hook",
        "secret": SECRET,
        "internal": True,
        "events": ["gate_waiting"],
    }
    options = options_for(tmp_path, private_key=app_key, app_id=github.app.app_id, api_url=github.api_url)
    process = Process(tmp_path, NOTIFY=json.dumps([table]), NOTIFY_GATE_WAIT="1s", **options)
    github.app.webhook_url = f"{process.url}/api/github/webhooks"
    inbox.answers = ["hang", "hang"]
    await (await process.start()).wait()
    await github.open_pull(UPSTREAM, author="octocat")
    for kills in (1, 2):
        await until(lambda kills=kills: len(inbox.got) == kills, what="the notice")
        process.kill()
        await process.ended()
        await (await process.start()).wait()
    await until(lambda: len(inbox.got) == 3, what="the notice again")
    sent = "SELECT state FROM notice_sending"
    await until(lambda: [row["state"] for row in process.rows(sent)] == ["sent"], what="its end")
    process.kill()
    await process.ended()

    assert len({headers["webhook-id"] for headers, _ in inbox.got}) == 1
    assert len(process.rows("SELECT id FROM notice")) == 1
