"""A job that runs the action's script, and the bot it reports to."""

import asyncio
import json
import re
import time
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from aiohttp import web

ACTION = Path(__file__).parents[2] / "actions" / "report"


ACCEPTED = (200, {"ok": True, "status": "accepted"})


DISPATCH = {
    "event_type": "pull_request",
    "delivery_id": "3b1d7c1e-0000-4000-8000-000000000001",
    "schema_version": 1,
    "payload": {"action": "opened", "pull_request": {"number": 7, "title": "Add a kernel"}},
    "callback_token": "header.claims.signature",
}


@dataclass
class Service:
    """The bot's callback and the runner's token service, saying what a test has told them to."""

    url: str = ""
    answers: list = field(default_factory=list)  # of the callback; accepted when empty
    token_answers: list = field(default_factory=list)
    headers: dict = field(default_factory=dict)  # of every refusal
    reports: list = field(default_factory=list)
    sizes: list = field(default_factory=list)
    authorizations: list = field(default_factory=list)
    times: list = field(default_factory=list)
    tokens: list = field(default_factory=list)  # audience and request token of each

    async def token(self, request):
        if self.token_answers:
            return web.Response(status=self.token_answers.pop(0))
        self.tokens.append((request.query["audience"], request.headers["Authorization"]))
        return web.json_response({"value": f"oidc-{len(self.tokens)}"})

    async def callback(self, request):
        text = await request.read()
        self.times.append(time.monotonic())
        self.sizes.append(len(text))
        self.reports.append(json.loads(text))
        self.authorizations.append(request.headers["Authorization"])
        status, body = self.answers.pop(0) if self.answers else ACCEPTED
        if status == "reset":
            request.transport.abort()
            return web.Response()
        if isinstance(body, str):
            return web.Response(status=status, text=body, content_type="text/html")
        headers = {} if status == 200 else self.headers
        return web.json_response(body, status=status, headers=headers)

    @property
    def workflow(self):
        """What the last report said about the job."""
        return self.reports[-1]["workflow"]


@dataclass
class Job:
    """A job of a backend's workflow: an event file, an environment, and a folder to work in."""

    folder: Path
    environment: dict

    def event(self, client_payload):
        text = json.dumps({"action": "pull_request", "client_payload": client_payload})
        (self.folder / "event.json").write_text(text)

    async def run(self, *command):
        """Run a command in the job and return its exit code and what it printed."""
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=self.folder,
            env=self.environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        return process.returncode, output.decode()

    async def report(self, **inputs):
        """Use the action with these inputs, as a runner would."""
        action = yaml.safe_load((ACTION / "action.yml").read_text())
        given = {name: declared.get("default", "") for name, declared in action["inputs"].items()}
        given |= {name.replace("_", "-"): value for name, value in inputs.items()}
        (step,) = action["runs"]["steps"]
        for variable, expression in step["env"].items():
            context, name = re.fullmatch(r"\${{ (\w+)\.([\w-]+) }}", expression).groups()
            self.environment[variable] = given[name] if context == "inputs" else "9001"
        script = self.folder / "step.sh"
        script.write_text(step["run"])
        return await self.run("bash", "--noprofile", "--norc", "-eo", "pipefail", str(script))
