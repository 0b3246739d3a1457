"""The context of tasks and request handlers: the parts of a running bot as one value, and what is made on first use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    import aiohttp

    from bot.core.clock import Clock
    from bot.core.feature import Features
    from bot.core.settings import Settings
    from bot.db.store import Store
    from bot.github.client import GitHubApp
    from bot.ingest.intake import Intake

R = TypeVar("R", bound="Closable")


class Closable(Protocol):
    """An object that can be closed."""

    async def close(self) -> None:
        """Release what it holds."""
        ...


T = TypeVar("T", bound=Closable)


@dataclass(frozen=True)
class Resource(Generic[T]):
    """The name of a long-lived object, and how it is made."""

    name: str
    make: Callable[[Any], T]  # from the context


@dataclass(frozen=True, kw_only=True)
class Context:
    """The parts of a running bot."""

    settings: Settings
    store: Store
    intake: Intake  # stores deliveries, many in one commit
    clock: Clock
    http: aiohttp.ClientSession
    github: GitHubApp  # the App on upstream: check runs, comments
    # the App on the backends: dispatches, re-runs; the same one unless there are two
    backend_github: GitHubApp
    events: frozenset[str]  # those with a handler
    features: Features
    resources: Resources  # what features keep open

    def resource(self, resource: Resource[R]) -> R:
        """Return a long-lived object of a feature, made on first use and closed with the bot."""
        return self.resources.get(resource, self)

    def app_for(self, repo: str) -> GitHubApp:
        """Return the App of the side a repository is on."""
        return self.github if self.settings.is_upstream(repo) else self.backend_github


class Resources:
    """Makes long-lived objects on first use, and closes them."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def get(self, resource: Resource[T], context: object) -> T:
        """Return an object, made on first use."""
        if resource.name not in self._made:
            self._made[resource.name] = resource.make(context)
        made: T = self._made[resource.name]
        return made

    async def close(self) -> None:
        """Close every object, the newest first."""
        while self._made:
            _, made = self._made.popitem()
            await made.close()
