"""The context of tasks and request handlers: the parts of a running bot as one value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import aiohttp

    from bot.core.clock import Clock
    from bot.core.feature import Features
    from bot.core.resources import Closable, Resource, Resources
    from bot.core.settings import Settings
    from bot.db.store import Store
    from bot.github.client import GitHubApp
    from bot.ingest.intake import Intake

R = TypeVar("R", bound="Closable")


@dataclass(frozen=True, kw_only=True)
class Context:
    """The parts of a running bot."""

    settings: Settings
    store: Store
    intake: Intake  # stores deliveries, many in one commit
    clock: Clock
    http: aiohttp.ClientSession
    github: GitHubApp  # the App on upstream: check runs, comments
    backend_github: (
        GitHubApp  # the App on the backends: dispatches, re-runs; the same one unless there are two
    )
    events: frozenset[str]  # those with a handler
    features: Features
    resources: Resources  # what features keep open

    def resource(self, resource: Resource[R]) -> R:
        """Return one of the features' long-lived objects, made on first use and closed with the bot."""
        return self.resources.get(resource, self)

    def app_for(self, repo: str) -> GitHubApp:
        """Return the App of the side a repository is on."""
        return self.github if self.settings.is_upstream(repo) else self.backend_github
