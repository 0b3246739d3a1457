"""Who has an account here? People, Apps, where Apps are installed, and what tokens they hold."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True)
class User:
    """An account: a person, an organisation or an App's bot."""

    id: int
    login: str
    type: str = "User"  # User | Organization | Bot


@dataclass(kw_only=True, eq=False)
class App:
    """A registered GitHub App. `webhook_url` may be set once the bot listens."""

    app_id: int
    client_id: str
    slug: str
    private_key_pem: str = field(repr=False)
    public_key_pem: str = field(repr=False)
    webhook_url: str | None
    webhook_secret: str = field(repr=False)
    permissions: dict[str, str]
    events: tuple[str, ...]
    created_at: int

    @property
    def bot_login(self) -> str:
        """The login under which the App writes."""
        return f"{self.slug}[bot]"


@dataclass(kw_only=True, eq=False)
class Installation:
    """One App on one account, for the chosen repositories."""

    id: int
    app: App
    account: str
    repository_ids: set[int]
    permissions: dict[str, str]
    created_at: int
    suspended_at: int | None = None
    without: frozenset[str] = frozenset()  # events that the App has asked for since and nobody has accepted

    @property
    def events(self) -> tuple[str, ...]:
        """What it is subscribed to."""
        return tuple(event for event in self.app.events if event not in self.without)


@dataclass(frozen=True, kw_only=True)
class Token:
    """An installation token; `repository_ids` None means all of the installation's."""

    value: str = field(repr=False)
    installation: Installation
    repository_ids: frozenset[int] | None
    permissions: Mapping[str, str]
    expires_at: int  # epoch milliseconds
    known_at: int  # when every one of GitHub's servers knows it
