"""Access to data of private repositories: for requests with ADMIN_TOKEN, and sessions signed in with it.

Request handlers find the running bot under keys of the aiohttp application.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiohttp import web

from bot.context import Context
from bot.core.errors import Rejected, StoreUnavailable

if TYPE_CHECKING:
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction

CONTEXT: web.AppKey[Context] = web.AppKey("context", Context)
BODY_SECONDS: web.AppKey[float] = web.AppKey("body_seconds", float)  # what a body may take to arrive

READING = frozenset({"GET", "HEAD"})  # the cookie suffices for them: they change nothing
FIND_PRIVATE: web.AppKey[FindPrivate] = web.AppKey("find_private")
# an error: the database could not tell
FORM_KEY: web.RequestKey[str] = web.RequestKey(
    "form_key", str
)  # of who is signed in; forms of our pages carry it
SIGNED_IN: web.RequestKey[bool | StoreUnavailable] = web.RequestKey("signed_in")


@dataclass(frozen=True, kw_only=True)
class Private:
    """Repositories whose rows may not be shown, by name and by id."""

    names: frozenset[str]  # case folded
    ids: frozenset[int]


FindPrivate = Callable[["Transaction", "Settings", Collection[str]], Awaitable[Private]]


@dataclass(frozen=True, kw_only=True)
class Hidden(Private):
    """The private repositories among those a request may be about; empty for the administrator."""

    def has(self, repo: str, repository_id: int | None = None) -> bool:
        """Whether a repository is one of them, by name or, since names change, by id."""
        return repository_id in self.ids or repo.casefold() in self.names

    def check_upstream(self, settings: Settings) -> None:
        """Raise Rejected 404 when everything this bot watches is hidden."""
        if all(map(self.has, settings.upstream_repo)):
            raise Rejected(404, "not_found", "there is nothing here that may be shown")


HIDDEN: web.RequestKey[Hidden] = web.RequestKey("hidden", Hidden)


async def hidden_from(request: web.Request, tx: Transaction, *also: str) -> Hidden:
    """Return what this request may not see, and keep it with the request; it is about these repositories, too."""
    if reads_private(request):
        private = Private(names=frozenset(), ids=frozenset())
    else:
        path, settings = request.match_info, request.app[CONTEXT].settings
        asked = f"{path.get('owner') or path.get('org')}/{path.get('repo')}"
        private = await request.app[FIND_PRIVATE](tx, settings, {asked, *also})
    request[HIDDEN] = hidden = Hidden(names=private.names, ids=private.ids)
    return hidden


def reads_private(request: web.Request) -> bool:
    """Whether everything may be shown: to the administrator, by token or signed in."""
    return is_admin(request) or is_signed_in(request)


def is_admin(request: web.Request) -> bool:
    """Whether the request carries ADMIN_TOKEN as its bearer token; never while none is set."""
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    return scheme.casefold() == "bearer" and is_token(request, given.strip())


def require_admin(request: web.Request) -> None:
    """Raise Rejected 404 while no token is set, 401 for all but the administrator.

    An administrator signed in with a browser may read, since the pages link their JSON; changes take the token.
    """
    if not request.app[CONTEXT].settings.admin_token:
        raise Rejected(404, "not_found", "this endpoint is closed: set OOTBOT_ADMIN_TOKEN to open it")
    if not (is_admin(request) or (request.method in READING and is_signed_in(request))):
        detail = "send the header `Authorization: Bearer <ADMIN_TOKEN>`"
        raise Rejected(401, "unauthorized", detail, headers={"WWW-Authenticate": "Bearer"})


def is_token(request: web.Request, given: str) -> bool:
    """Whether this is ADMIN_TOKEN; never while none is set."""
    token = request.app[CONTEXT].settings.admin_token
    if not token:
        return False
    return hmac.compare_digest(given.encode("utf-8", "replace"), token.encode())


def is_signed_in(request: web.Request) -> bool:
    """Whether the sender is signed in; raises StoreUnavailable while the database cannot say."""
    signed_in: bool | StoreUnavailable = request.get(SIGNED_IN, False)
    if isinstance(signed_in, StoreUnavailable):
        raise signed_in
    return signed_in
