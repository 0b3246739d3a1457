"""A Buildkite that runs a pipeline for upstream's pushes, and tells the bot of it as Buildkite does.

Its jobs wait for agents, fail, are retried, and some may fail; the newest push still runs.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bot.core.json_fields import iso_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bot.demo.environment import Environment

VARIABLE, TOKEN = "BUILDKITE_TOKEN", "a token of the demo's Buildkite"
ORGANIZATION, PIPELINE = "pytorch", "fastcheck"
PATH = "/api/buildkite/webhooks"
MINUTE = 60_000
PUSHES = 14  # the newest, that it knows
BROKEN, FLAKY, SOFT = range(1, 4), 7, 5  # pushes before the newest
WAITED = 12 * MINUTE  # for an agent of the NPUs, which are few


@dataclass(frozen=True, kw_only=True)
class Step:
    """A step of the pipeline."""

    key: str
    label: str
    queue: str
    minutes: int
    parallel: int = 0


STEPS = (
    Step(key="build", label=":docker: Build image", queue="cpu", minutes=9),
    Step(key="npu", label=":npu: Operators", queue="npu", minutes=24, parallel=2),
    Step(key="docs", label=":books: Docs", queue="cpu", minutes=5),
)
AGENTS = (("cpu", "connected"), ("cpu", "connected"), ("npu", "connected"), ("npu", "lost"))


def settings(repository: str) -> dict[str, str]:
    """Return the bot's option for it."""
    entry = {"kind": "buildkite", "pipelines": {f"{ORGANIZATION}/{PIPELINE}": repository}}
    return {"PROVIDERS": json.dumps([entry])}


async def send_history(environment: Environment, pushes: Sequence[tuple[str, int]]) -> None:
    """Have the bot hear of the builds of some pushes, given by commit and time, the oldest first."""
    for number, (queue, state) in enumerate(AGENTS):
        await _send(environment, {"event": f"agent.{state}", "agent": _agent(number, queue), "sender": {}})
    newest = pushes[-PUSHES:]
    for at, (sha, pushed_at) in enumerate(newest):
        age = len(newest) - 1 - at
        for event in build_events(sha, pushed_at, age=age, number=400 + at):
            await _send(environment, event)


def build_events(sha: str, pushed_at: int, *, age: int, number: int) -> Iterator[dict[str, Any]]:
    """Yield what Buildkite tells of the build of one push; `age` counts the pushes after it."""
    began = pushed_at + MINUTE
    build = {
        "id": _uuid(f"build {number}"),
        "number": number,
        "state": "running" if age == 0 else "failed" if age in BROKEN else "passed",
        "blocked": False,
        "branch": "main",
        "commit": sha,
        "tag": None,
        "source": "webhook",
        "created_at": iso_time(pushed_at),
        "started_at": iso_time(began),
        "finished_at": None if age == 0 else iso_time(began + 40 * MINUTE),
        "web_url": f"https://buildkite.com/{ORGANIZATION}/{PIPELINE}/builds/{number}",
        "pull_request": None,
    }
    for step in STEPS:
        for index in range(max(step.parallel, 1)):
            for job in _jobs(step, index, build, began, age):
                named = (
                    "job.finished"
                    if job["finished_at"]
                    else "job.started"
                    if job["started_at"]
                    else "job.scheduled"
                )
                yield _event(named, build, job)
    yield _event("build.running" if age == 0 else "build.finished", build)


def _jobs(step: Step, index: int, build: dict[str, Any], began: int, age: int) -> Iterator[dict[str, Any]]:
    """Yield the attempts of one job."""
    fails = step.key == "npu" and index == 1 and (age in BROKEN or age == FLAKY)
    soft = step.key == "docs" and age == SOFT
    first = _job(step, index, build, began, attempt=0)
    if age == 0 and step.key == "npu":  # there is no agent for the second one yet
        unstarted = {"state": "scheduled", "started_at": None, "finished_at": None, "exit_status": None}
        running = {"state": "running", "finished_at": None, "exit_status": None}
        yield first | (unstarted if index else running)
        return
    failed = {"state": "failed", "exit_status": 1, "soft_failed": soft}
    yield first | (failed if fails or soft else {})
    if age == FLAKY and fails:
        second = _job(step, index, build, began + 30 * MINUTE, attempt=1)
        yield first | failed | {"retried": True, "retried_in_job_id": second["id"]}
        yield second


def _job(step: Step, index: int, build: dict[str, Any], began: int, *, attempt: int) -> dict[str, Any]:
    """Return a job that passed."""
    identifier = _uuid(f"{build['number']} {step.key} {index} {attempt}")
    started = began + (WAITED if step.queue == "npu" else MINUTE)
    return {
        "id": identifier,
        "type": "script",
        "name": step.label,
        "step_key": step.key,
        "command": "make test",
        "state": "passed",
        "exit_status": 0,
        "soft_failed": False,
        "retried": False,
        "retried_in_job_id": None,
        "retries_count": attempt,
        "parallel_group_index": index if step.parallel else None,
        "parallel_group_total": step.parallel or None,
        "agent_query_rules": [f"queue={step.queue}"],
        "created_at": iso_time(began),
        "scheduled_at": iso_time(began),
        "runnable_at": iso_time(began),
        "started_at": iso_time(started),
        "finished_at": iso_time(started + step.minutes * MINUTE),
        "web_url": f"{build['web_url']}#{identifier}",
    }


def _event(name: str, build: dict[str, Any], job: dict[str, Any] | None = None) -> dict[str, Any]:
    about = {"job": job} if job else {}
    pipeline = {"id": _uuid(PIPELINE), "slug": PIPELINE, "name": PIPELINE}
    return {
        "event": name,
        "build": build,
        **about,
        "pipeline": pipeline,
        "sender": {"id": "1", "name": "Buildkite"},
    }


def _agent(number: int, queue: str) -> dict[str, Any]:
    identifier = _uuid(f"agent {number}")
    return {
        "id": identifier,
        "name": f"{queue}-{number}",
        "web_url": f"https://buildkite.com/organizations/{ORGANIZATION}/agents/{identifier}",
        "meta_data": [f"queue={queue}"],
    }


def _uuid(text: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_OID, text))


async def _send(environment: Environment, event: dict[str, Any]) -> None:
    """Deliver an event, signed as Buildkite signs: over the time and the body."""
    body, at = json.dumps(event).encode(), environment.github.state.now() // 1000
    digest = hmac.new(TOKEN.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    headers = {
        "Content-Type": "application/json",
        "X-Buildkite-Event": event["event"],
        "X-Buildkite-Signature": f"timestamp={at},signature={digest}",
    }
    async with environment.http.post(f"{environment.bot.url}{PATH}", data=body, headers=headers) as answer:
        answer.raise_for_status()
