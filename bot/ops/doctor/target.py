"""The target of the checks: an installation's settings, store, Apps and clock; nothing is changed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bot.github import manifest
from bot.github.client import GitHubApp

if TYPE_CHECKING:
    import aiohttp

    from bot.core.clock import Clock
    from bot.core.finding import Finding
    from bot.core.settings import Settings
    from bot.db.store import Store
    from bot.github.manifest import Manifest, Role
    from bot.oot.allowlist.allowlist import Allowlist

Check = Callable[["Target"], Awaitable[list["Finding"]]]


@dataclass(frozen=True, kw_only=True)
class AppUnderTest:
    """One of our Apps, and its role."""

    role: Role
    github: GitHubApp
    secret: str  # the webhook secret in force; never shown

    @property
    def words(self) -> str:
        """Its name in findings."""
        where = {"one": "", "upstream": " (upstream)", "relay": " (backends)"}[self.role]
        return f"App {self.github.app_id}{where}"

    def wanted(self, allowlist: Allowlist | None) -> Manifest:
        """Return the manifest this App should have, given who takes part."""
        entries = allowlist.entries if allowlist else ()
        only_workflows = bool(entries) and all(entry.dispatch == "workflow" for entry in entries)
        return manifest.manifest_for(
            self.role, workflow_dispatch=only_workflows, server_version=self.github.server_version
        )


@dataclass(frozen=True, kw_only=True)
class Target:
    """The installation that is examined."""

    settings: Settings
    store: Store  # not opened: nothing is migrated
    http: aiohttp.ClientSession
    clock: Clock
    apps: tuple[AppUnderTest, ...]
    checks: tuple[tuple[str, Check], ...] = ()  # of the features, by name

    async def has_database(self) -> bool:
        """Whether there is a database to look at: SQLite would make one."""
        if not self.store.sqlite:
            return True
        return await asyncio.to_thread(Path(self.store.url.database or "").exists)

    @property
    def upstream(self) -> AppUnderTest:
        """The App on upstream."""
        return self.apps[0]

    @property
    def relay(self) -> AppUnderTest:
        """The App on the backends; the same one unless there are two."""
        return self.apps[-1]

    def app_for(self, repo: str) -> GitHubApp:
        """Return the App of the side a repository is on, as `Context.app_for` does."""
        return (self.upstream if self.settings.is_upstream(repo) else self.relay).github


def apps(settings: Settings, http: aiohttp.ClientSession, clock: Clock) -> tuple[AppUnderTest, ...]:
    """Return the App, or both; raises Misconfigured for an invalid key."""

    def app(role: Role, app_id: int, private_key: str, secret: str) -> AppUnderTest:
        github = GitHubApp(
            app_id=app_id, private_key=private_key, api_url=settings.github_api_url, http=http, clock=clock
        )
        return AppUnderTest(role=role, github=github, secret=secret)

    secret = settings.webhook_secret[0]
    if settings.relay_app_id is None or settings.relay_private_key is None:
        return (app("one", settings.app_id, settings.private_key, secret),)
    relay_secret = (settings.relay_webhook_secret or settings.webhook_secret)[0]
    return (
        app("upstream", settings.app_id, settings.private_key, secret),
        app("relay", settings.relay_app_id, settings.relay_private_key, relay_secret),
    )
