"""Who may read what belongs to a private repository? Only whoever holds ADMIN_TOKEN, or signed in with it."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aiohttp import web

from bot.domain.allowlist_source import on_github
from bot.errors import Rejected
from bot.store import reads
from bot.store.reads import Private
from bot.web.keys import CONTEXT

if TYPE_CHECKING:
    from bot.settings import Settings
    from bot.store import Transaction

COOKIE = "ootbot_admin"
SIGNED_IN = 12 * 3600  # seconds


@dataclass(frozen=True, kw_only=True)
class Hidden(Private):
    """What one request may not see of what it may be about: what is private; nothing for the administrator."""

    def has(self, repo: str) -> bool:
        """Whether a repository is one of them, by name."""
        return repo.casefold() in self.names

    def has_row(self, row: dict[str, Any]) -> bool:
        """Whether a record's repository is one of them: by id too, since names change."""
        return row["repository_id"] in self.ids or self.has(row["repo"])

    def check_upstream(self, settings: Settings) -> None:
        """Raise Rejected 404 when everything this bot watches is hidden."""
        if all(map(self.has, settings.upstream_repo)):
            raise Rejected(404, "not_found", "there is nothing here that may be shown")


HIDDEN: web.RequestKey[Hidden] = web.RequestKey("hidden", Hidden)


async def of_request(request: web.Request, tx: Transaction) -> Hidden:
    """Return what this request may not see, and note it with the request."""
    if reads_private(request):
        private = Private(names=frozenset(), ids=frozenset())
    else:
        private = await reads.private(tx, _named(request))
    request[HIDDEN] = found = Hidden(names=private.names, ids=private.ids)
    return found


def _named(request: web.Request) -> set[str]:
    """Return the repositories an answer may be about, apart from those of our own rows."""
    settings, path = request.app[CONTEXT].settings, request.match_info
    source = on_github(settings.allowlist)
    asked = f"{path.get('owner') or path.get('org')}/{path.get('repo')}"
    return {*settings.upstream_repo, asked, *([source.repo] if source else [])}


def reads_private(request: web.Request) -> bool:
    """Whether everything may be shown: to the administrator, by token or signed in."""
    return is_admin(request) or is_signed_in(request)


def is_admin(request: web.Request) -> bool:
    """Whether the request carries ADMIN_TOKEN as its bearer token; never while none is set."""
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    return scheme.casefold() == "bearer" and is_token(request, given.strip())


def is_token(request: web.Request, given: str) -> bool:
    """Whether this is ADMIN_TOKEN; never while none is set."""
    token = request.app[CONTEXT].settings.admin_token
    if not token:
        return False
    return hmac.compare_digest(given.encode("utf-8", "replace"), token.encode())


def is_signed_in(request: web.Request) -> bool:
    """Whether the request carries the cookie that signing in gave, and it has not run out."""
    context = request.app[CONTEXT]
    until, _, given = request.cookies.get(COOKIE, "").partition(".")
    if not context.settings.admin_token or not (until.isascii() and until.isdigit() and len(until) < 16):
        return False
    right = hmac.compare_digest(
        given.encode("utf-8", "replace"), _signature(context.settings, until).encode()
    )
    return right and int(until) > context.clock.now()


def cookie(request: web.Request) -> str:
    """Return the cookie of somebody who has just shown ADMIN_TOKEN: good until a time, worthless to others."""
    context = request.app[CONTEXT]
    until = str(context.clock.now() + SIGNED_IN * 1000)
    return f"{until}.{_signature(context.settings, until)}"


def form_key(request: web.Request) -> str:
    """Return what forms of the administrator's pages carry: another site cannot know it."""
    settings = request.app[CONTEXT].settings
    return _signature(settings, f"form {request.cookies.get(COOKIE, '')}")


def _signature(settings: Settings, words: str) -> str:
    key = (settings.admin_token or "").encode()
    return hmac.new(key, f"ootbot {words}".encode(), hashlib.sha256).hexdigest()
