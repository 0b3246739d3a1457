"""What the tools of today do: the step of a workflow that reports its job, the relay, the merge guard, the on-call bot.

Written after their public behaviour. The step knows the environment it is given: these field names and headers, a token
for one audience, everything text, one attempt, and it fails on an answer of 400 or above.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import NamedTuple

AUDIENCE = "pytorch-cross-repo-ci-relay"
UPSTREAM = "pytorch/pytorch"


class StepFailedError(Exception):
    """The step failed: the answer was 400 or above."""

    def __init__(self, status, answer):
        super().__init__(f"HTTP {status}: {answer}")
        self.status = status
        self.answer = answer


class Client:
    """The reporting step of one job of one run of one backend."""

    def __init__(
        self,
        bot,
        repo,
        client_payload=None,
        *,
        job="build",
        workflow="CI",
        run_id="900",
        run_attempt="1",
        check_run_id="",
        path="/api/oot/callback/",
        audience=AUDIENCE,
    ):
        self.bot = bot
        self.repo = repo
        self.client_payload = client_payload
        self.job, self.workflow = job, workflow
        self.run_id, self.run_attempt = run_id, run_attempt
        self.check_run_id = check_run_id or f"{run_id}-{run_attempt}"
        self.path = path
        self.audience = audience

    async def started(self, **inputs):
        return await self.report("in_progress", **inputs)

    async def ended(self, conclusion="success", **inputs):
        return await self.report("completed", conclusion=conclusion, **inputs)

    async def nightly(self, delivery_id, conclusion="success", *, event_type="nightly", **inputs):
        """Report on a run that a timer began."""
        made_up = {
            "event_type": event_type,
            "delivery_id": delivery_id,
            "payload": {"repository": {"full_name": UPSTREAM}, "head_sha": delivery_id},
        }
        return await self.post(made_up | {"workflow": self.fields("completed", conclusion, inputs)})

    async def report(self, status, *, conclusion="", **inputs):
        return await self.post(self.client_payload | {"workflow": self.fields(status, conclusion, inputs)})

    def fields(self, status, conclusion, inputs):
        """Return the member `workflow`, with the optional inputs that were given."""
        now = datetime.fromtimestamp(self.bot.clock.now() / 1000, UTC).isoformat().replace("+00:00", "Z")
        fields = {
            "schema_version": "1", "status": status,
            "conclusion": conclusion.strip() or None if status == "completed" else None,
            "name": self.workflow, "url": f"https://github.com/{self.repo}/actions/runs/{self.run_id}",
            "run_attempt": self.run_attempt, "job_name": self.job, "check_run_id": self.check_run_id,
            "run_id": self.run_id, "started_at": now if status == "in_progress" else None,
            "completed_at": now if status == "completed" else None,
        }  # fmt: skip
        return fields | inputs

    async def post(self, body):
        """Send the report once, as curl with --fail-with-body does; returns the answer."""
        token = self.bot.issuer.mint(
            repository=self.repo, run_id=self.run_id, run_attempt=self.run_attempt, audience=self.audience
        )
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
        status, answer = await self.bot.request("POST", self.path, data=json.dumps(body), headers=headers)
        if status >= 400:
            raise StepFailedError(status, answer)
        return answer


def of(bot, dispatch, **options):
    """Return the client in a workflow that this dispatch has started."""
    return Client(bot, dispatch.repo.full_name, dispatch.client_payload, **options)


# A relay of today: it checked who reports, measured the times, and passes the report on as it came.
#
# The HUD writes the end of a job once and answers 409 to another; the relay tells its backend that this was a duplicate,
# which is no failure. Every other refusal fails the backend's step.

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


# A merge guard and an on-call bot of today: all they know they read from the names of check runs.
#
# `crcr/{owner}/{repo}/{workflow}/{job}`, of each name the newest; the level and the people come from the allowlist;
# what they do not find does not stop them.

GOOD = {"success", "neutral", "skipped"}


class Seen(NamedTuple):
    """What a check run says of a backend's job."""

    repo: str
    workflow: str
    job: str
    status: str
    conclusion: str | None
    external_id: str


def seen(github, repo, sha):
    """Return the jobs of backends on a commit, by the name of their newest check run."""
    newest = {run.name: run for run in sorted(github.check_runs(repo, sha), key=lambda run: run.id)}
    found = {}
    for name, run in newest.items():
        if name.startswith("crcr/"):
            _, owner, backend, workflow, job = name.split("/", 4)
            found[name] = Seen(
                f"{owner}/{backend}", workflow, job, run.status, run.conclusion, run.external_id
            )
    return found


def objections(github, repo, sha, blocking):
    """Return the check runs because of which a commit is not merged."""
    jobs = seen(github, repo, sha)
    return sorted(
        name for name, job in jobs.items()
        if job.repo in blocking and (job.status != "completed" or job.conclusion not in GOOD)
    )  # fmt: skip


def paged(github, repo, sha, oncalls):
    """Return who is mentioned because a backend's job failed."""
    jobs = seen(github, repo, sha).values()
    failed = {job.repo for job in jobs if job.conclusion in {"failure", "timed_out"}}
    return sorted(person for backend in failed for person in oncalls.get(backend, ()))
