"""Rulesets as they were read: every version of every source, of which the last valid one is in force."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.ci.logs.parse import rules
from bot.ci.logs.settings import LogsSettings
from bot.ci.logs.tables import RulesetRow, ci_log, ci_ruleset
from bot.db.rows import select
from bot.ingest.tables import records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.ci.logs.parse.rules import Ruleset
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction

OWN = ".github/ootbot-log-rules.toml"  # a repository's own rules, on its default branch
REPOSITORIES_MOST = 200  # that are asked for rules of their own

_parse = lru_cache(maxsize=64)(rules.parse_rules)  # pure: the same text is the same ruleset
_shipped = lru_cache(maxsize=1)(rules.shipped_rules)


def own_source(repo: str) -> str:
    """Return the source of a repository's own rules."""
    return f"{repo.casefold()}:{OWN}"


async def store_version(tx: Transaction, source: str, content: str, *, error: str | None, count: int) -> None:
    """Store what a source says now; `error` is what is wrong with it."""
    digest = hashlib.sha256(f"{source}\0{content}\0{error}".encode()).hexdigest()[: rules.DIGEST_LENGTH]
    values = {
        "source": source,
        "content": content,
        "valid": error is None,
        "error": error,
        "rules": count,
        "loaded_at": tx.now,
    }
    statement = tx.insert(ci_ruleset).values(values | {"digest": digest})
    await tx.run(statement.on_conflict_do_update(index_elements=["digest"], set_=values))


async def newest_versions(tx: Transaction) -> list[RulesetRow]:
    """Return the version of every source that was read last, valid or not."""
    last = sa.select(ci_ruleset.c.source, sa.func.max(ci_ruleset.c.loaded_at).label("at"))
    read = last.group_by(ci_ruleset.c.source).subquery()
    same = sa.and_(ci_ruleset.c.source == read.c.source, ci_ruleset.c.loaded_at == read.c.at)
    query = select(RulesetRow, ci_ruleset).join(read, same).order_by(ci_ruleset.c.source)
    return await tx.fetch(query)


async def rules_in_force(tx: Transaction, settings: Settings, repo: str) -> Ruleset:
    """Return the rules for a repository's logs: the operator's, its own, and those that come with the program."""
    sources = [*settings.of(LogsSettings).ci_log_rules, own_source(repo)]
    query = select(RulesetRow, ci_ruleset).where(ci_ruleset.c.source.in_(sources), ci_ruleset.c.valid)
    valid = await tx.fetch(query.order_by(ci_ruleset.c.loaded_at))
    contents = {row["source"]: row["content"] for row in valid}
    stored = [_parse(contents[source].encode(), source) for source in sources if source in contents]
    return rules.merge_rulesets([*stored, _shipped()])


async def ids_with_logs(tx: Transaction) -> list[int]:
    """Return the repositories of which there are logs: few, in very many rows, so each is found from the one before."""
    log = ci_log.c.repository_id
    each = sa.select(sa.func.min(log).label("id")).cte(recursive=True)
    following = sa.select(sa.func.min(log)).where(log > each.c.id).scalar_subquery()
    each = each.union_all(sa.select(following).where(each.c.id.is_not(None)))
    found = sa.select(each.c.id).where(each.c.id.is_not(None)).limit(REPOSITORIES_MOST)
    return list((await tx.run(found)).scalars())


async def repositories_with_logs(tx: Transaction) -> Sequence[str]:
    """Return the names of the repositories of which there are logs."""
    repository = records["repository"].c
    query = sa.select(repository.full_name).where(
        repository.repository_id.in_(await ids_with_logs(tx)), repository.full_name.is_not(None)
    )
    return sorted((await tx.run(query)).scalars())
