"""A client of today: a step of a backend's workflow that reports its job, built from the environment it is given.

Written after its public behaviour: these field names and headers, a token for one audience, everything text, one
attempt, and the step fails on an answer of 400 or above.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime

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
            "schema_version": "1",
            "status": status,
            "conclusion": conclusion.strip() or None if status == "completed" else None,
            "name": self.workflow,
            "url": f"https://github.com/{self.repo}/actions/runs/{self.run_id}",
            "run_attempt": self.run_attempt,
            "job_name": self.job,
            "check_run_id": self.check_run_id,
            "run_id": self.run_id,
            "started_at": now if status == "in_progress" else None,
            "completed_at": now if status == "completed" else None,
        }
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
