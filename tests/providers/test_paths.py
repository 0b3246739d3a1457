"""Which way do requests of other CIs take: the fast path where something follows, to the process that listens."""

from __future__ import annotations

import asyncio
import json

from bot.web.handover import LISTENER, WORKER, choose_process, is_delivery
from tests.process import PATIENCE
from tests.providers.sending import (
    BUILDKITE,
    CIRCLECI,
    circleci,
    job_event,
    signed_buildkite,
    signed_circleci,
)
from tests.serving import SQLITE
from tests.web.test_edge import call, gated  # noqa: F401 - `call` is a fixture
from tests.web.test_fast_path import answer_of, by_aiohttp


def request(path, event, headers):
    body = json.dumps(event).encode()
    told = {
        "Host": "bot.example",
        "Content-Length": str(len(body)),
        "Content-Type": "application/json",
    } | headers(body)
    lines = "".join(f"{name}: {value}\r\n" for name, value in told.items())
    return f"POST {path} HTTP/1.1\r\n{lines}\r\n".encode() + body


@SQLITE
async def test_an_event_takes_the_fast_path_unless_nothing_follows_from_it(bot, call):  # noqa: F811
    now = bot.clock.now() // 1000

    def buildkite(body):
        return signed_buildkite(body, now) | {"X-Buildkite-Event": "job.finished"}

    def of_circleci(body):
        return signed_circleci(body) | {"circleci-event-type": "job-completed"}

    sent = [
        (request(BUILDKITE, job_event("passed"), buildkite), 202, True),
        (request(CIRCLECI, circleci(), of_circleci), 202, True),
        (request(CIRCLECI, circleci(slug="gh/x/y"), of_circleci), 202, False),
        (request(BUILDKITE, job_event("failed"), lambda body: signed_buildkite(body, now - 400)), 401, False),
        (request("/api/jenkins/webhooks", circleci(), of_circleci), 404, False),
    ]
    async with gated(bot) as port, asyncio.timeout(PATIENCE):
        for raw, status, fast in sent:
            reader, _ = await call(port, raw)
            found, headers, told = await answer_of(reader)
            assert (found, not by_aiohttp(headers)) == (status, fast), told
    await bot.settle()
    assert len(await bot.rows("provider_job")) == 2


def test_events_are_taken_by_the_process_that_listens():
    assert choose_process("POST", BUILDKITE) == choose_process("POST", f"{CIRCLECI}/") == LISTENER
    assert choose_process("POST", "/api/github/webhooks") == LISTENER
    assert choose_process("POST", "/api/github/webhooksx") == WORKER
    assert not is_delivery("/api/a/b/webhooks")
