"""What happened on the simulated GitHub? Records that tests read back, never changed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bot.demo.github.accounts import App
    from bot.demo.github.state import Repo, Run


@dataclass(frozen=True, kw_only=True)
class Call:
    """One request to the REST API. `app_id` is None when nobody was authenticated."""

    method: str
    path: str  # below the API's address, without the query
    query: str
    status: int  # as answered; 0 when the connection was dropped
    app_id: int | None
    faulted: bool
    at: int  # epoch milliseconds
    body: Any = field(default=None, repr=False)


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """One attempt to hand an event to an App: a row of the App's delivery log."""

    id: int
    guid: str
    app: App
    event: str
    action: str | None
    payload: dict[str, Any] = field(repr=False)
    raw: bytes = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    status: str
    status_code: int
    delivered_at: int  # epoch milliseconds
    duration: float  # seconds
    redelivery: bool
    repository_id: int | None
    installation_id: int | None
    answer: str = field(default="", repr=False)

    @property
    def ok(self) -> bool:
        """Whether the App took it."""
        return 200 <= self.status_code < 300


@dataclass(frozen=True, kw_only=True)
class Dispatch:
    """An accepted repository_dispatch or workflow_dispatch.

    A workflow_dispatch has `event_type` "workflow_dispatch", its inputs in `client_payload`, and
    the run that GitHub queued for it in `run`.
    """

    repo: Repo
    event_type: str
    client_payload: dict[str, Any]
    at: int  # epoch milliseconds
    app: App
    workflow: str | None = None
    ref: str | None = None
    run: Run | None = None


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that Apps are told about. `only` narrows it to one App."""

    name: str
    action: str | None
    repo: Repo
    sender: str
    body: dict[str, Any] = field(repr=False)
    only: App | None = None
