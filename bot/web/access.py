"""Who may read what belongs to a private repository? Only whoever holds ADMIN_TOKEN."""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bot.errors import Rejected
from bot.store import reads
from bot.web.keys import CONTEXT

if TYPE_CHECKING:
    from aiohttp import web

    from bot.settings import Settings
    from bot.store import Transaction


@dataclass(frozen=True, kw_only=True)
class Access:
    """What one request may not see: everything private, or nothing for the administrator."""

    names: frozenset[str]  # case folded names of repositories
    ids: frozenset[int]

    def hides(self, repo: str) -> bool:
        """Whether a repository is hidden, by name."""
        return repo.casefold() in self.names

    def hides_row(self, row: dict[str, Any]) -> bool:
        """Whether a record's repository is hidden: by id too, since names change."""
        return row["repository_id"] in self.ids or self.hides(row["repo"])

    def check_upstream(self, settings: Settings) -> None:
        """Raise Rejected 404 when everything this bot watches is hidden."""
        if all(map(self.hides, settings.upstream_repo)):
            raise Rejected(404, "not_found", "there is nothing here that may be shown")


async def of_request(request: web.Request, tx: Transaction) -> Access:
    """Return what this request may not see."""
    if is_admin(request):
        return Access(names=frozenset(), ids=frozenset())
    private = await reads.private(tx)
    return Access(names=private.names, ids=private.ids)


def is_admin(request: web.Request) -> bool:
    """Whether the request carries ADMIN_TOKEN as its bearer token; never while none is set."""
    token = request.app[CONTEXT].settings.admin_token
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    if not token or scheme.casefold() != "bearer":
        return False
    return hmac.compare_digest(given.strip().encode("utf-8", "replace"), token.encode())
