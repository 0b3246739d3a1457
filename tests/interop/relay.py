"""A relay of today: it checked who reports, measured the times, and passes the report on as it came."""

from __future__ import annotations

import json

TOKEN = "a token that the relay and we share"


def envelope(report, repo, *, level="L2", queue_time=None, execution_time=None):
    """Return what it posts: its own findings, and the report that nobody checked."""
    return {
        "trusted": {
            "ci_metrics": {"queue_time": queue_time, "execution_time": execution_time},
            "verified_repo": repo,
            "downstream_repo_level": level,
        },
        "untrusted": {"callback_payload": report},
    }


async def forward(bot, body, *, path="/api/crcr/results", token=TOKEN):
    """Post to the results endpoint under `path`; returns status and answer."""
    headers = {"Content-Type": "application/json", "x-hud-internal-bot": token}
    return await bot.request("POST", path, data=json.dumps(body), headers=headers)
