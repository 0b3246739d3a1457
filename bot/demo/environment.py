"""Everything that runs during the demo: a GitHub, an issuer, the backends' CIs, and the bot as a process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import secrets
import signal
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import aiohttp

import bot
from bot.demo import buildkite, participants, trunk_history
from bot.demo.backends import Backends
from bot.demo.github import SimulatedGitHub
from bot.demo.issuer import Issuer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from bot.demo.backends import Backend
    from bot.demo.github import App, Call, CheckRun, Comment, Pull
    from bot.demo.participants import Expected
    from bot.demo.past_reports import PastHead
    from bot.demo.trunk_history import Month

    WritePast = Callable[[Mapping[str, str], Sequence[PastHead]], Awaitable[None]]

PREFIX = "OOTBOT_"
START_TIMEOUT = 60.0  # seconds until it must answer
STOP_TIMEOUT = 30.0  # seconds from SIGTERM until it must have exited
TAIL_LINES = 30  # of the log, shown when something went wrong
ERRORS = frozenset({"error", "critical"})
ADDRESS = re.compile(r"^ootbot .* at (http://\S+)/oot, listening on ")


class BotFailedError(Exception):
    """The bot did not start or exited by itself; the message holds the end of its log."""


class BotProcess:
    """A running bot. Its log is a file in the folder given to `start`."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path, options: Mapping[str, str]) -> None:
        self._process = process
        self._log = log
        self._options = options
        self.folder = log.parent
        self.url = ""

    @classmethod
    async def start(cls, options: Mapping[str, str], folder: Path) -> BotProcess:
        """Start the bot with these options (names without OOTBOT_) and wait until it answers.

        Raises BotFailedError when it does not answer in time; no process is left behind then.
        """
        log = folder / "bot.log"
        with log.open("wb") as file:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "bot.cli", "serve"),
                cwd=folder,  # so that an ootbot.toml of the caller is not read
                env=_environment(options),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=file,
            )
        started = cls(process, log, options)
        try:
            started.url = await started._address()
        except BaseException:
            await started.stop()
            raise
        return started

    async def command(self, *arguments: str, **options: str) -> tuple[int, str]:
        """Run a console command with the bot's options and further ones; returns exit code and output."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bot.cli", *arguments),
            cwd=self.folder,
            env=_environment({**self._options, **options}),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT if "--json" not in arguments else asyncio.subprocess.DEVNULL,
        )
        out, _ = await process.communicate()
        return process.returncode or 0, out.decode(errors="replace")

    async def watch(self) -> None:
        """Raise BotFailedError when it exits; cancel this before stopping it."""
        code = await self._process.wait()
        raise self._failed(f"the bot exited by itself with code {code}")

    async def stop(self) -> int:
        """Stop it and return its exit code; it is killed when SIGTERM does not end it in time."""
        self._signal(signal.SIGTERM)
        try:
            return await asyncio.wait_for(self._process.wait(), STOP_TIMEOUT)
        except TimeoutError:
            self._signal(signal.SIGKILL)
            return await self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        # not by Popen.send_signal: it collects the exit code of a process that has just ended, and asyncio misses it
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, number)

    def log_tail(self) -> str:
        """Return the end of its log."""
        lines = self._log.read_text(errors="replace").splitlines()
        return "\n".join(lines[-TAIL_LINES:])

    def first_error(self) -> str:
        """Return the first error in its log; empty when there is none."""
        lines = self._log.read_text(errors="replace").splitlines()
        return next((line for line in lines if json.loads(line)["level"] in ERRORS), "")

    async def _address(self) -> str:
        """Return its address, from the first line it prints."""
        assert self._process.stdout is not None
        try:
            line = (await asyncio.wait_for(self._process.stdout.readline(), START_TIMEOUT)).decode().strip()
        except TimeoutError:
            raise self._failed(f"the bot did not answer within {START_TIMEOUT:.0f} s") from None
        match = ADDRESS.match(line)
        if match is None:
            raise self._failed(f"the bot did not start: its first line is {line!r}, not its address")
        return match[1]

    def _failed(self, problem: str) -> BotFailedError:
        return BotFailedError(f"{problem}; the end of its log:\n{self.log_tail()}")


def _environment(options: Mapping[str, str]) -> dict[str, str]:
    """Return the caller's environment with its OOTBOT_ options replaced by these."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    source = str(Path(bot.__file__).parents[1])
    kept["PYTHONPATH"] = os.pathsep.join(filter(None, [source, kept.get("PYTHONPATH")]))
    kept[buildkite.VARIABLE] = buildkite.TOKEN
    return kept | {PREFIX + name: value for name, value in options.items()}


POLL_INTERVAL = 0.05  # seconds
PAGE_INTERVAL = 0.5  # seconds: a page takes the bot some work
TIMEOUT = 60.0  # seconds that an expectation may take to come true


class ExpectationError(Exception):
    """An expectation did not come true in time."""

    def __init__(self, expectation: str, problem: str) -> None:
        super().__init__(problem)
        self.expectation = expectation


@dataclass(frozen=True, kw_only=True)
class Environment:
    """The running services, and the App that connects them."""

    github: SimulatedGitHub
    runners: asyncio.Event  # while cleared, the backends' jobs stay queued
    backends: dict[str, Backend]
    app: App
    bot: BotProcess
    http: aiohttp.ClientSession
    expected: Expected
    admin_token: str
    month: Month | None = None  # what came before, if its reports are in the database already
    progress: Callable[[int, int], None] | None = None  # called while the past is sent to the bot
    timeout: float = TIMEOUT

    async def wait_until(self, expectation: str, condition: Callable[[], object]) -> None:
        """Return as soon as the condition holds; raise ExpectationError after the timeout."""
        try:
            async with asyncio.timeout(self.timeout):
                while not condition():  # noqa: ASYNC110 - there is no event to wait for
                    await asyncio.sleep(POLL_INTERVAL)
        except TimeoutError:
            raise ExpectationError(expectation, f"not within {self.timeout:.0f} s") from None

    async def wait_for_page(self, expectation: str, path: str, *texts: str) -> None:
        """Return as soon as a page of the bot's has these texts; raise ExpectationError after the timeout."""
        try:
            async with asyncio.timeout(self.timeout):
                while not await self._has_texts(path, texts):  # noqa: ASYNC110 - another process's state
                    await asyncio.sleep(PAGE_INTERVAL)
        except TimeoutError:
            raise ExpectationError(expectation, f"not within {self.timeout:.0f} s") from None

    async def _has_texts(self, path: str, texts: Sequence[str]) -> bool:
        async with self.http.get(self.bot.url + path) as answer:
            page = await answer.text()
            return answer.ok and all(text in page for text in texts)

    async def ready(self) -> None:
        """Return when the bot is ready: it listens a moment before it has read the allowlist."""
        try:
            async with asyncio.timeout(self.timeout):
                while not await self._answers("/readyz"):  # noqa: ASYNC110 - another process's state
                    await asyncio.sleep(POLL_INTERVAL)
        except TimeoutError:
            raise ExpectationError("the bot is ready", f"not within {self.timeout:.0f} s") from None

    async def quiet(self, seconds: float) -> None:
        """Return when the bot has not called GitHub for that long."""
        calls = -1
        while calls != len(self.github.calls):
            calls = len(self.github.calls)
            await asyncio.sleep(seconds)

    def checks(self, pull: Pull, sha: str | None = None) -> dict[str, CheckRun]:
        """Return the App's newest check run of each name on a commit, by default the head."""
        runs = self.github.check_runs(pull.repo, sha or pull.head_sha)
        return {run.name: run for run in runs if run.app is self.app}

    def comments(self, pull: Pull) -> list[Comment]:
        """Return the App's comments, oldest first."""
        return [comment for comment in self.github.comments(pull) if comment.app is self.app]

    def creations(self, what: Literal["check-runs", "comments"]) -> list[Call]:
        """Return the calls that created a check run or a comment."""
        return [
            call for call in self.github.calls if call.method == "POST" and call.path.endswith(f"/{what}")
        ]

    def writes(self) -> list[Call]:
        """Return the calls that changed a repository; token requests and dispatches are not among them."""
        return [call for call in self.github.calls if is_write(call)]

    async def _answers(self, path: str) -> bool:
        async with self.http.get(self.bot.url + path) as answer:
            return answer.ok


def is_write(call: Call) -> bool:
    """Whether a call changes a repository; asking for a token does not, and dispatches are counted apart."""
    return (
        call.method != "GET" and not call.path.startswith("/app/") and not call.path.endswith("/dispatches")
    )


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """How the environment is to be."""

    port: int = 0  # the bot's; 0: a free one
    github_port: int = 0
    start_timeout: str = "1h"  # after which a silent backend counts as never started
    preset: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)  # further ones of the bot
    write_past: WritePast | None = None  # writes what backends reported earlier into a bot's database
    progress: Callable[[int, int], None] | None = None


@contextlib.asynccontextmanager
async def running(wanted: Wanted | None = None) -> AsyncIterator[Environment]:
    """Start everything, and stop it all at the end."""
    wanted = wanted or Wanted()
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ootbot-demo-")))
        github, issuer = SimulatedGitHub(), Issuer()
        for server, port in ((github, wanted.github_port), (issuer, 0)):
            await server.start(port)
            stack.push_async_callback(server.stop)
        app = github.register_app(webhook_url=None, webhook_secret="a demo has no secrets")  # noqa: S106 - it protects nothing
        expected = participants.EXPECTED[wanted.preset]
        backends = Backends(github, issuer, audience=expected.audience)
        by_name = _add_repositories(github, backends)
        (folder / "allowlist.yml").write_text(participants.allowlist(wanted.start_timeout))
        options = _options(github, issuer, app, folder)
        options |= {"PORT": str(wanted.port)} | ({"PRESET": wanted.preset} if wanted.preset else {})
        options |= wanted.options
        month = None
        if wanted.write_past and expected.history:
            month = trunk_history.make_month(github)
            await wanted.write_past(_environment(options), month.reported)
        bot = await BotProcess.start(options, folder)
        stack.push_async_callback(bot.stop)
        stack.push_async_callback(backends.stop)
        app.webhook_url = f"{bot.url}/api/github/webhooks"
        http = await stack.enter_async_context(
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT))
        )
        yield Environment(
            github=github,
            runners=backends.runners,
            backends=by_name,
            app=app,
            bot=bot,
            http=http,
            expected=expected,
            admin_token=options["ADMIN_TOKEN"],
            month=month,
            progress=wanted.progress,
        )


def _add_repositories(github: SimulatedGitHub, backends: Backends) -> dict[str, Backend]:
    """Create all repositories, with the App installed on each; return the backends by name."""
    for name in (participants.UPSTREAM, *participants.BACKENDS):
        github.add_repo(name)
    return {
        participants.WATCHER: backends.add(participants.WATCHER, silent=True),
        participants.RISCV: backends.add(participants.RISCV, *participants.RISCV_JOBS),
        participants.FPGA: backends.add(participants.FPGA, silent=True),
        participants.NPU: backends.add(participants.NPU, *participants.NPU_PASSES),
        participants.TPU: backends.add(participants.TPU, *participants.tpu_jobs()),
    }


def _options(github: SimulatedGitHub, issuer: Issuer, app: App, folder: Path) -> dict[str, str]:
    """Return the bot's options: everything on loopback, writes faster than the real GitHub would allow."""
    return {
        "APP_ID": str(app.app_id),
        "PRIVATE_KEY": app.private_key_pem,
        "WEBHOOK_SECRET": app.webhook_secret,
        "GITHUB_API_URL": github.api_url,
        "UPSTREAM_REPO": participants.UPSTREAM,
        "ALLOWLIST": str(folder / "allowlist.yml"),
        "DATA_DIR": str(folder / "data"),
        "ADMIN_TOKEN": secrets.token_urlsafe(12),
        "OIDC_ISSUERS": json.dumps([{"issuer": issuer.url, "repository_claim": "repository"}]),
        "PUBLISH_INTERVAL": "1s",
        "CI_DISABLE": "suggest",
        "CI_BRANCHES": "release/*",
        "WRITES_PER_MIN": "6000",
        "LOG_FORMAT": "json",
        **buildkite.settings(participants.UPSTREAM),
    }
