"""Accounts: people, Apps, their installations and installation tokens."""

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
    """A registered GitHub App; `webhook_url` may be set later, once the bot listens."""

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
        """The login of the App's bot account."""
        return f"{self.slug}[bot]"


@dataclass(kw_only=True, eq=False)
class Installation:
    """An App on an account, for the selected repositories."""

    id: int
    app: App
    account: str
    repository_ids: set[int]
    permissions: dict[str, str]
    created_at: int
    suspended_at: int | None = None
    without: frozenset[str] = frozenset()  # events requested later that the account has not accepted

    @property
    def events(self) -> tuple[str, ...]:
        """The events it is subscribed to."""
        return tuple(event for event in self.app.events if event not in self.without)


@dataclass(frozen=True, kw_only=True)
class Token:
    """An installation token; `repository_ids` None means all repositories of the installation."""

    value: str = field(repr=False)
    installation: Installation
    repository_ids: frozenset[int] | None
    permissions: Mapping[str, str]
    expires_at: int  # epoch milliseconds
    known_at: int  # epoch milliseconds; when it has reached all of GitHub's servers
