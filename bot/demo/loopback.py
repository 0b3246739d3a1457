"""What runs on loopback during the demo? A GitHub, an issuer, the backends' CIs, and the bot as a process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp

from bot.demo import cast
from bot.demo.backends import Backends
from bot.demo.github import SimulatedGitHub
from bot.demo.issuer import Issuer
from bot.demo.stage_bot import BotProcess

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from bot.demo.backends import Backend
    from bot.demo.github import App

LOOK = 0.05  # seconds between two looks at what has become of something
PATIENCE = 20.0  # seconds after which what should have happened has not


class NotAsToldError(Exception):
    """The story went another way: `sentence` did not come true, the message says since when."""

    def __init__(self, sentence: str, against: str) -> None:
        super().__init__(against)
        self.sentence = sentence


@dataclass(frozen=True, kw_only=True)
class Loopback:
    """Everything that runs, and the App they all know."""

    github: SimulatedGitHub
    runners: asyncio.Event  # cleared, the backends' jobs stay queued
    backends: dict[str, Backend]
    app: App
    bot: BotProcess
    http: aiohttp.ClientSession
    patience: float = PATIENCE

    async def until(self, sentence: str, true: Callable[[], object]) -> None:
        """Return as soon as it is true; raises NotAsToldError with the sentence when that takes too long."""
        try:
            async with asyncio.timeout(self.patience):
                while not true():  # noqa: ASYNC110 - what is waited for has no event
                    await asyncio.sleep(LOOK)
        except TimeoutError:
            raise NotAsToldError(sentence, f"not within {self.patience:.0f} s") from None

    async def ready(self) -> None:
        """Return when the bot can work: it listens a moment before it has read the allowlist."""
        try:
            async with asyncio.timeout(self.patience):
                while not await self._answers("/readyz"):  # noqa: ASYNC110 - another process's state
                    await asyncio.sleep(LOOK)
        except TimeoutError:
            raise NotAsToldError("the bot is ready", f"not within {self.patience:.0f} s") from None

    async def quiet(self, seconds: float) -> None:
        """Return when the bot has called GitHub no more for that long."""
        calls = -1
        while calls != len(self.github.calls):
            calls = len(self.github.calls)
            await asyncio.sleep(seconds)

    async def _answers(self, path: str) -> bool:
        async with self.http.get(self.bot.url + path) as answer:
            return answer.ok


@contextlib.asynccontextmanager
async def running(*, port: int, start_timeout: str) -> AsyncIterator[Loopback]:
    """Start everything, the bot on this port (0: a free one); end it all at the end, the bot last but one.

    `start_timeout` is after how long a silent backend counts as never started, such as `20s`.
    """
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ootbot-demo-")))
        github, issuer = SimulatedGitHub(), Issuer()
        for server in (github, issuer):
            await server.start()
            stack.push_async_callback(server.stop)
        app = github.register_app(webhook_url=None, webhook_secret="a demo has no secrets")  # noqa: S106 - it guards nothing
        backends = Backends(github, issuer)
        cis = _open(github, backends)
        (folder / "allowlist.yml").write_text(cast.allowlist(start_timeout))
        bot = await BotProcess.start(_options(github, issuer, app, port), folder)
        stack.push_async_callback(bot.stop)
        stack.push_async_callback(backends.stop)
        app.webhook_url = f"{bot.url}/api/github/webhooks"
        http = await stack.enter_async_context(
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PATIENCE))
        )
        yield Loopback(github=github, runners=backends.runners, backends=cis, app=app, bot=bot, http=http)


def _open(github: SimulatedGitHub, backends: Backends) -> dict[str, Backend]:
    """Make all repositories, with the App in each; return the backends' CIs."""
    for name in (cast.UPSTREAM, *cast.BACKENDS):
        github.add_repo(name)
    return {
        cast.WATCHER: backends.add(cast.WATCHER, silent=True),
        cast.RISCV: backends.add(cast.RISCV, *cast.RISCV_JOBS),
        cast.FPGA: backends.add(cast.FPGA, silent=True),
        cast.NPU: backends.add(cast.NPU, *cast.NPU_PASSES),
        cast.TPU: backends.add(cast.TPU, *cast.tpu_jobs()),
    }


def _options(github: SimulatedGitHub, issuer: Issuer, app: App, port: int) -> dict[str, str]:
    """Return the bot's options: everything on loopback, and livelier than GitHub would allow."""
    return {
        "APP_ID": str(app.app_id),
        "PRIVATE_KEY": app.private_key_pem,
        "WEBHOOK_SECRET": app.webhook_secret,
        "GITHUB_API_URL": github.api_url,
        "UPSTREAM_REPO": cast.UPSTREAM,
        "ALLOWLIST": "allowlist.yml",
        "PORT": str(port),
        "OIDC_ISSUERS": json.dumps([{"issuer": issuer.url, "repository_claim": "repository"}]),
        "PUBLISH_INTERVAL": "1s",
        "WRITES_PER_MIN": "6000",
        "LOG_FORMAT": "json",
    }
