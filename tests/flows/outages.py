"""What the tests of recovery ask of GitHub's delivery log."""

from __future__ import annotations

import json
import uuid
from collections import Counter

from bot.demo.github import Delivery
from tests.harness import UPSTREAM

NOWHERE = "http://127.0.0.1:9/nobody"


ROUND = 660  # seconds in which each periodic task runs once more


ASKED = "/attempts"


def log_row(github, event, payload, *, guid=None, status=502, repository_id=5):
    """Put one more row into GitHub's log of deliveries to our App, as if it had been tried now."""
    row = Delivery(
        id=github.state.new_id(), guid=guid or str(uuid.uuid4()), app=github.app, event=event,
        action=payload.get("action"), payload=payload, raw=json.dumps(payload).encode(), headers={},
        status="OK" if status == 202 else "failed to connect to host", status_code=status,
        delivered_at=github.state.now(), duration=0.1, redelivery=False, repository_id=repository_id,
        installation_id=1,
    )  # fmt: skip
    github.deliveries.append(row)
    return row


def a_job(number):
    job = {"id": number, "run_id": 1, "run_attempt": 1, "name": "build", "status": "queued"}
    repository = {"id": 5, "full_name": "org/project"}
    return {"action": "queued", "workflow_job": job, "repository": repository}


def asked_for(github):
    """How often each delivery was asked for once more, by GUID."""
    rows = {row.id: row.guid for row in github.deliveries}
    calls = [call for call in github.calls if call.path.endswith(ASKED)]
    return Counter(rows[int(call.path.split("/")[-2])] for call in calls)


async def unseen(github, **options):
    """Open a pull request whose events GitHub never generates, not even in its log."""
    return await silently(github, github.open_pull(UPSTREAM, **options))


async def silently(github, happening):
    fault = github.faults.add(method="HOOK", drop=True, times=100)
    result = await happening
    github.faults.waiting.remove(fault)
    return result


async def stored(bot):
    return {row["guid"]: row["source"] for row in await bot.rows("delivery")}


async def metric(bot, name):
    """The value of one line of /metrics."""
    _, text = await bot.get("/metrics")
    return next(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))
