"""Other CIs: how many of their events are taken, beside GitHub's, and how fast a large build is applied.

    python3 dev.py bench providers [--rounds 3] [--events 10000] [--seconds 6] [--json]

`ootbot serve` takes the same number of events, of the same size and each only once, at each of its endpoints, in turns.
Then the events of one build of Buildkite, three for each job, wait for it and are applied; and answers are timed while
a busy build and GitHub deliver at once.
"""  # fmt: skip

from __future__ import annotations

import argparse
import contextlib
import hashlib
import hmac
import json
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.support import generator
from benchmarks.support.generator import posted, webhook
from benchmarks.support.machine import describe, figure, ratio, show
from benchmarks.support.serve import UPSTREAM, Bot, until
from benchmarks.webhooks.rates import FAMILY, SETTLED
from bot.core import log_output

if TYPE_CHECKING:
    from collections.abc import Iterator

SIZE = 6_000  # bytes of a body
SECRET = "a secret of the benchmark's"
ENVIRON = {"CIRCLECI_SECRET": SECRET, "BUILDKITE_TOKEN": SECRET}
PROVIDERS = json.dumps([
    {"kind": "circleci", "projects": {"gh/org/upstream": UPSTREAM}},
    {"kind": "buildkite", "pipelines": {"org/fastcheck": UPSTREAM}},
])  # fmt: skip
SHA = "a" * 40
STATES = ("scheduled", "running", "passed")
EVENTS = {"scheduled": "job.scheduled", "running": "job.started", "passed": "job.finished"}
APPLIED = "seconds until the events of one build are applied"
USED = "processor seconds of everything meanwhile"
APPLIED_WITHIN = 5.0  # for 10,000 events; the processor's time tells on a busy machine, too
BUSY = 10_000  # events a minute
WITHIN = 0.9  # of what GitHub's endpoint takes


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--events", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=6, help="of the load whose answers are timed")
    parser.add_argument("--settled", type=float, default=SETTLED, help="seconds to let each start go by")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    os.environ |= ENVIRON
    rates: dict[str, list[float]] = {name: [] for name in SENDERS}
    costs: dict[str, list[float]] = {name: [] for name in SENDERS}
    seconds, applying = [], []
    for _ in range(options.rounds):
        for name, make in SENDERS.items():
            with started(options.settled) as bot, bot.listening_alone():
                before = bot.cpu()
                found = generator.run(bot.port, make(options.events), seconds=60, count=options.events)
                rates[name].append(found["per_second"])
                costs[name].append((bot.cpu() - before) / found["answers"] * 1e6)
        took, used = applied(options.events, options.settled)
        seconds.append(took)
        applying.append(used)
    ours = {f"{name}, events per second": figure(values) for name, values in rates.items()}
    ours |= {f"{name}, processor us an event": figure(values) for name, values in costs.items()}
    ours |= {APPLIED: figure(seconds, 2), USED: figure(applying, 2)}
    paced = [response_times(options.seconds, options.settled) for _ in range(options.rounds)]
    for name in ("Buildkite", "GitHub"):
        ours[f"{name}, p99 ms at {BUSY} events a minute each"] = figure((one[name] for one in paced), 1)
    ratios = {
        f"{name}, by processor time / GitHub": ratio(costs["GitHub"], costs[name])
        for name in ("Buildkite", "CircleCI")
    }
    result = {
        "name": "providers",
        "machine": describe(),
        "rounds": options.rounds,
        "ours": ours,
        "peers": {},
        "ratios": ratios,
        "reach": reached(ratios, ours, options.events),
    }
    show(result, as_json=options.json)


def reached(ratios: dict, ours: dict, events: int) -> list[dict]:
    """Return a line for each target, and whether it is met."""
    lines = [
        {"name": name, "target": f">= {WITHIN:g}", "measured": found, "met": found["median"] >= WITHIN}
        for name, found in ratios.items()
    ]
    most = APPLIED_WITHIN * events / 10_000
    return lines + [
        {"name": name, "target": f"<= {most:g}", "measured": ours[name], "met": ours[name]["median"] <= most}
        for name in (APPLIED, USED)
    ]


@contextlib.contextmanager
def started(settled: float) -> Iterator[Bot]:
    """A bot on a new database that knows upstream by its id, once its start is over."""
    with tempfile.TemporaryDirectory() as folder, Bot(folder, processes=FAMILY, PROVIDERS=PROVIDERS) as bot:
        time.sleep(settled)
        repository = {"id": 1, "full_name": UPSTREAM, "private": False, "default_branch": "main"}
        told = json.dumps({"action": "edited", "repository": repository}).encode()
        generator.run(bot.port, [webhook("repository", told)], seconds=30, count=1)
        until(lambda: not bot.waiting(), "the repository")
        yield bot


def applied(events: int, settled: float) -> tuple[float, float]:
    """Return the seconds until the events of one build that wait are applied, and those of the processor."""
    with started(settled) as bot:
        with bot.listening_alone():
            generator.run(bot.port, buildkite(events), seconds=60, count=events)
        began, used = time.perf_counter(), bot.cpu()
        until(lambda: not bot.waiting(), "the build")
        took, used = time.perf_counter() - began, bot.cpu() - used
        if (jobs := bot.count("SELECT count(*) FROM provider_job")) != -(-events // len(STATES)):
            raise SystemExit(f"{jobs} jobs were recorded of {events} events")
        return took, used


def response_times(seconds: float, settled: float) -> dict[str, float]:
    """Return the 99th percentile of response times, in ms, while a busy build and GitHub deliver at once."""
    rate = BUSY / 60
    with started(settled) as bot, ThreadPoolExecutor(2) as pool:
        sent = {
            "Buildkite": buildkite(round(rate * seconds) + 1),
            "GitHub": github(round(rate * seconds) + 1),
        }
        running = {
            name: pool.submit(generator.run, bot.port, requests, seconds=seconds, rate=rate)
            for name, requests in sent.items()
        }
        return {name: one.result()["p99_ms"] for name, one in running.items()}


def github(events: int) -> list[bytes]:
    """So many jobs of GitHub Actions that ended."""
    repository = {"id": 1, "full_name": UPSTREAM}
    found = []
    for number in range(events):
        job = {"id": number, "run_id": 1, "name": "test", "status": "completed", "conclusion": "success"}
        told = {"action": "completed", "workflow_job": job | {"head_sha": SHA}, "repository": repository}
        found.append(webhook("workflow_job", padded(told)))
    return found


def buildkite(events: int) -> list[bytes]:
    """The events of one build: each of its jobs is scheduled, then runs, then passes."""
    build = {
        "id": "b", "number": 1, "state": "running", "branch": "main", "commit": SHA,
        "web_url": "https://buildkite.com/org/fastcheck/builds/1",
    }  # fmt: skip
    found, now = [], int(time.time())
    for number in range(events):
        job, state = divmod(number, len(STATES))
        ended = state == len(STATES) - 1
        about = {
            "id": f"018f0a6e-0000-4000-8000-{job:012d}", "type": "script", "name": f"Test {job % 400}",
            "state": STATES[state], "exit_status": 0 if ended else None, "agent_query_rules": ["queue=npu"],
            "created_at": "2026-01-31T12:00:00Z", "runnable_at": "2026-01-31T12:00:01Z",
            "started_at": "2026-01-31T12:01:00Z" if state else None,
            "finished_at": "2026-01-31T12:09:00Z" if ended else None,
        }  # fmt: skip
        named = EVENTS[STATES[state]]
        body = padded({"event": named, "job": about, "build": build, "pipeline": {"slug": "fastcheck"}})
        digest = hmac.new(SECRET.encode(), f"{now}.".encode() + body, hashlib.sha256).hexdigest()
        headers = {"X-Buildkite-Event": named, "X-Buildkite-Signature": f"timestamp={now},signature={digest}"}
        found.append(posted("/api/buildkite/webhooks", body, headers))
    return found


def circleci(events: int) -> list[bytes]:
    """So many jobs of CircleCI that ended."""
    found = []
    for number in range(events):
        body = padded({
            "id": f"event-{number}", "type": "job-completed", "project": {"slug": "gh/org/upstream"},
            "job": {"id": f"job-{number}", "number": number, "name": "test", "status": "success"},
            "workflow": {"id": "w", "name": "ci"},
            "pipeline": {"id": "p", "vcs": {"revision": SHA, "branch": "main"}},
        })  # fmt: skip
        digest = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
        headers = {"circleci-event-type": "job-completed", "circleci-signature": f"v1={digest}"}
        found.append(posted("/api/circleci/webhooks", body, headers))
    return found


def padded(told: dict) -> bytes:
    """Return a body of the size that all have."""
    body = json.dumps(told | {"more": ""}).encode()
    return body.replace(b'"more": ""', b'"more": "%b"' % (b"x" * (SIZE - len(body))))


SENDERS = {"GitHub": github, "Buildkite": buildkite, "CircleCI": circleci}

if __name__ == "__main__":
    log_output.configure(fmt="console", level="critical")  # what is printed is the result
    main()
