"""CircleCI and Buildkite as senders: bodies as their documents have them, signed as they sign."""

from __future__ import annotations

import hashlib
import hmac
import io
import json
import uuid

from tests.harness import START, UPSTREAM
from tests.jobs.branch import COMMITS, MINUTE, iso

CIRCLECI, BUILDKITE = "/api/circleci/webhooks", "/api/buildkite/webhooks"
SECRET, TOKEN = "a secret of CircleCI", "a token of Buildkite"
SLUG, PIPELINE = "gh/pytorch/vision", "pytorch/fastcheck"
BUILD = "018e0a6e-0000-4000-8000-000000000077"


def signed_circleci(body: bytes, secret: str = SECRET) -> dict[str, str]:
    digest = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return {"circleci-signature": f"v1={digest},v2=00", "user-agent": "CircleCI-Webhook/1.0"}


def signed_buildkite(body: bytes, at: int, token: str = TOKEN) -> dict[str, str]:
    digest = hmac.new(token.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    return {"X-Buildkite-Signature": f"timestamp={at},signature={digest}"}


async def send_circleci(bot, event, *, secret=SECRET, headers=None, body=None):
    """Deliver an event of CircleCI; returns status and JSON."""
    raw = json.dumps(event).encode() if body is None else body
    kind = event.get("type", "") if isinstance(event, dict) else ""
    sent = {"content-type": "application/json", "circleci-event-type": kind} | signed_circleci(raw, secret)
    sent = {name: value for name, value in (sent | (headers or {})).items() if value is not None}
    return await bot.request("POST", CIRCLECI, data=io.BytesIO(raw), headers=sent)


async def send_buildkite(bot, event, *, token=TOKEN, at=None, headers=None, body=None):
    """Deliver an event of Buildkite; returns status and JSON."""
    raw = json.dumps(event).encode() if body is None else body
    seconds = bot.clock.now() // 1000 if at is None else at
    named = event.get("event", "") if isinstance(event, dict) else ""
    sent = {"Content-Type": "application/json", "X-Buildkite-Event": named}
    sent |= signed_buildkite(raw, seconds, token)
    sent = {name: value for name, value in (sent | (headers or {})).items() if value is not None}
    return await bot.request("POST", BUILDKITE, data=raw, headers=sent)


async def taken(bot, answers):
    """Check that each was stored, and let the bot work."""
    for status, answer in answers:
        assert status == 202, answer
        assert "ignored" not in answer
    await bot.settle()


async def deliver_buildkite(bot, *events):
    await taken(bot, [await send_buildkite(bot, event) for event in events])


async def deliver_circleci(bot, *events):
    await taken(bot, [await send_circleci(bot, event) for event in events])


def commit(name):
    return COMMITS.get(name, name)


def circleci(
    kind="job-completed", *, sha="A", branch="main", job="test", status="success", number=136, at=0, identifier=None,
    workflow="ci", workflow_id="fda08377-fe7e-46b1-8992-3a7aaecac9c3", vcs=True, slug=SLUG,
):  # fmt: skip
    """An event of CircleCI as its reference shows it, for a GitHub OAuth project or one of its GitHub App."""
    git = {"checkout_sha": commit(sha), "ref": f"refs/heads/{branch}", "branch": branch}
    told = (
        {
            "vcs": {
                "provider_name": "github",
                "revision": commit(sha),
                "branch": branch,
                "commit": {"subject": "A change"},
            }
        }
        if vcs
        else {"trigger_parameters": {"git": git, "github_app": {}, "circleci": {"event_type": "push"}}}
    )
    body = {
        "id": identifier
        or str(uuid.uuid5(uuid.NAMESPACE_OID, f"{kind}{workflow_id}{job!a}{status}{number}{sha}{slug}")),
        "type": kind,
        "happened_at": iso(START + (at + 6) * MINUTE),
        "webhook": {"id": "cf8c4fdd-0587-4da1-b4ca-4846e9640af9", "name": "ootbot"},
        "project": {"id": "84996744-a854-4f5e-aea3-04e2851dc1d2", "name": "vision", "slug": slug},
        "organization": {"id": "f22b6566-597d-46d5-ba74-99ef5bb3d85c", "name": "pytorch"},
        "workflow": {
            "id": workflow_id,
            "name": workflow,
            "created_at": iso(START + at * MINUTE),
            "stopped_at": iso(START + (at + 6) * MINUTE),
            "url": f"https://app.circleci.com/pipelines/github/pytorch/vision/130/workflows/{workflow_id}",
        },
        "pipeline": {
            "id": "1285fe1d-d3a6-44fc-8886-8979558254c4",
            "number": 130,
            "created_at": iso(START + at * MINUTE),
            "trigger": {"type": "webhook"},
            **told,
        },
    }
    if kind == "job-completed":
        body["job"] = {
            "id": str(uuid.uuid5(uuid.NAMESPACE_OID, f"{workflow_id}{job!a}{number}")),
            "number": number,
            "name": job,
            "status": status,
            "started_at": iso(START + (at + 1) * MINUTE),
            "stopped_at": iso(START + (at + 5) * MINUTE),
        }
    else:
        body["workflow"]["status"] = status
    return body


def build(
    state="running", *, sha="A", branch="main", number=77, pull=None, identifier=BUILD, blocked=False, at=0
):
    """The build of an event of Buildkite."""
    ended = state in {"passed", "failed", "canceled", "skipped", "not_run"}
    return {
        "id": identifier,
        "number": number,
        "state": state,
        "blocked": blocked,
        "branch": branch,
        "commit": commit(sha),
        "tag": None,
        "message": "A change",
        "source": "webhook",
        "created_at": "2026-09-21 14:13:20 UTC",  # the older of its two forms
        "started_at": iso(START + at * MINUTE),
        "finished_at": iso(START + (at + 20) * MINUTE) if ended else None,
        "web_url": f"https://buildkite.com/{PIPELINE.partition('/')[0]}/fastcheck/builds/{number}",
        "pull_request": {"id": str(pull), "base": "main", "repository": "https://x.test"} if pull else None,
    }


def job_event(
    state="passed", *, job="018f0a6e-0000-4000-8000-000000000001", name=":npu: Test", event=None, kind="script",
    at=0, of=None, slug="fastcheck", **more,
):  # fmt: skip
    """An event about a job of Buildkite; without a name of its own the one that comes with the state."""
    begun = state not in {"scheduled", "assigned", "accepted", "waiting", "limited", "blocked", "expired"}
    ended = begun and state not in {"running", "canceling", "timing_out"}
    named = event or (
        "job.finished" if ended or state == "expired" else "job.started" if begun else "job.scheduled"
    )
    of = of or build(at=at)
    body = {
        "id": job,
        "type": kind,
        "name": name,
        "step_key": "npu-test",
        "command": "pytest -x",
        "state": state,
        "exit_status": {"passed": 0, "failed": 1}.get(state),
        "soft_failed": False,
        "retried": False,
        "retried_in_job_id": None,
        "retries_count": 0,
        "parallel_group_index": None,
        "parallel_group_total": None,
        "agent_query_rules": ["queue=npu", "arch=arm64"],
        "created_at": iso(START + at * MINUTE),
        "scheduled_at": iso(START + at * MINUTE),
        "runnable_at": iso(START + at * MINUTE + 1_000),
        "started_at": iso(START + (at + 2) * MINUTE) if begun else None,
        "finished_at": iso(START + (at + 12) * MINUTE) if ended else None,
        "web_url": f"{of['web_url']}#{job}",
        "log_url": f"https://api.buildkite.com/v2/organizations/pytorch/pipelines/fastcheck/builds/77/jobs/{job}/log",
    }
    return {
        "event": named,
        "job": body | more,
        "build": of,
        "pipeline": {
            "id": "p1",
            "slug": slug,
            "name": slug,
            "repository": f"https://github.com/{UPSTREAM}.git",
        },
        "sender": {"id": "s", "name": "Some Person"},
    }


def build_event(state="running", *, event=None, **about):
    """An event about a build of Buildkite."""
    named = event or {"scheduled": "build.scheduled", "running": "build.running"}.get(state, "build.finished")
    return {
        "event": named,
        "build": build(state, **about),
        "pipeline": {"id": "p1", "slug": "fastcheck"},
        "sender": {},
    }


def agent_event(state, *, agent="a-1", queue="npu", organization="pytorch"):
    """An event about an agent of Buildkite."""
    return {
        "event": f"agent.{state}",
        "agent": {
            "id": agent,
            "name": f"machine-{agent}",
            "web_url": f"https://buildkite.com/organizations/{organization}/agents/{agent}",
            "meta_data": [f"queue={queue}", "arch=arm64"] if queue else [],
        },
        "sender": {"id": "s", "name": "Some Person"},
    }


def status(
    bot, context, state, *, sha="A", at=0, identifier=1, url=None, description="2 failed", seconds=None
):
    """A commit status as GitHub tells of it."""
    moment = iso((START // 1000 * 1000 + at * MINUTE) if seconds is None else seconds)
    from tests.jobs.branch import repository

    return (
        "status",
        {
            "id": identifier,
            "sha": commit(sha),
            "name": UPSTREAM,
            "context": context,
            "state": state,
            "description": description,
            "target_url": url or "https://ci.example.test/7",
            "branches": [{"name": "main"}],
            "created_at": moment,
            "updated_at": moment,
            "repository": repository(bot),
        },
    )
