"""Repositories and accounts whose events lead to anything: upstream, and those that features name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bot.core.feature import load_each
from bot.core.json_fields import decode

if TYPE_CHECKING:
    from bot.context import Context
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction


@dataclass(frozen=True, kw_only=True)
class Watched:
    """What is watched, in lower case."""

    repositories: frozenset[str]  # records of these are compared with GitHub
    accounts: frozenset[str]  # their missed deliveries are requested before others'


async def watched(context: Context, tx: Transaction) -> Watched:
    """Return upstream, with what every feature adds."""
    settings = context.settings
    repositories = {repo.lower() for repo in settings.upstream_repo}
    accounts = set(map(owner_of, settings.upstream_repo))
    for find in load_each(context.features, "watched"):
        found: Watched = await find(tx, settings)
        repositories |= found.repositories
        accounts |= found.accounts
    return Watched(repositories=frozenset(repositories), accounts=frozenset(accounts))


def owner_of(repo: str) -> str:
    """Return the account a repository belongs to, case folded."""
    return repo.partition("/")[0].casefold()


def canonical_name(settings: Settings, repo: str) -> str:
    """Return a repository's name; upstream's as spelled in the settings: GitHub ignores case, our keys do not."""
    folded = repo.casefold()
    return next((name for name in settings.upstream_repo if name.casefold() == folded), repo)


def read_payload(settings: Settings, body: bytes) -> dict[str, Any]:
    """Return a decoded body, upstream's name as spelled in the settings; raises Unreadable."""
    payload: dict[str, Any] = decode(body)
    repository = payload.get("repository")
    if isinstance(repository, dict) and isinstance(name := repository.get("full_name"), str):
        repository["full_name"] = canonical_name(settings, name)
    return payload
