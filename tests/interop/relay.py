"""A relay of today: it checked who reports, measured the times, and passes the report on as it came.

The HUD writes the end of a job once and answers 409 to another; the relay tells its backend that this was a duplicate,
which is no failure. Every other refusal fails the backend's step.
"""

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


async def pass_on(bot, report, repo, **measured):
    """Post to the HUD's address, and return what the backend is answered: None if its step fails."""
    status, answer = await forward(bot, envelope(report, repo, **measured), path="/crcr/results")
    if status == 409:
        return {"ok": True, "status": "duplicate"}
    return {"ok": True, "status": answer["status"]} if status == 200 else None


async def forward(bot, body, *, path="/api/crcr/results", token=TOKEN):
    """Post to the results endpoint under `path`; returns status and answer."""
    headers = {"Content-Type": "application/json", "x-hud-internal-bot": token}
    return await bot.request("POST", path, data=json.dumps(body), headers=headers)
