"""What may a task use? Everything it depends on, handed to it as one value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bot.clock import Clock
    from bot.github import GitHubApp
    from bot.oidc import Verifier
    from bot.settings import Settings
    from bot.store import Store


@dataclass(frozen=True, kw_only=True)
class Context:
    """The parts of a running bot."""

    settings: Settings
    store: Store
    clock: Clock
    github: GitHubApp  # the App on upstream: check runs, comments
    relay: GitHubApp  # the App on the backends: dispatches, re-runs; the same one unless RELAY_APP_ID is set
    verifier: Verifier
    events: frozenset[str]  # what there are handlers for

    def app_for(self, repo: str) -> GitHubApp:
        """Return the App of the side a repository is on."""
        return self.github if self.settings.is_upstream(repo) else self.relay
