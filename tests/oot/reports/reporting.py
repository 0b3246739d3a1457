"""What do tests report, and what is stored of it?"""

import base64
import io
import json

from tests.harness import UPSTREAM, UPSTREAM_ID

PATH = "/api/oot/callback"
OPENED = {
    "action": "opened",
    "issue": {
        "id": 7,
        "number": 1,
        "title": "It is slow",
        "state": "open",
        "updated_at": "2026-01-02T03:04:05Z",
    },
    "repository": {"id": UPSTREAM_ID, "full_name": UPSTREAM},
}
SUITE = {"status": "completed", "conclusion": "success", "job": "build", "run_id": "900", "attempt": 1}


async def traces(bot):
    """What an accepted report would leave behind."""
    await bot.settle()
    checks = [(run.id, run.status, run.conclusion, run.output) for run in bot.github.check_runs_all(UPSTREAM)]
    return await bot.rows("oot_workflow_job"), await bot.rows("oot_rate"), checks


async def post(bot, body, token, **headers):
    """Send a report; returns status, JSON and headers."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    sent = {"Content-Type": "application/json"} | headers
    if token is not None:
        sent["Authorization"] = f"Bearer {token}"
    async with bot.http.post(bot.url + PATH, data=io.BytesIO(raw), headers=sent) as answer:
        return answer.status, await answer.json(), answer.headers


def token_of(bot, caller, **claims):
    return bot.issuer.mint(**({"repository": caller, "run_id": "900"} | claims))


def encoded(part) -> str:
    raw = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
