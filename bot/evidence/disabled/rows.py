"""Statements on issues that disable tests or jobs, and whether a failing test is disabled where it failed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.db.rows import select
from bot.evidence.disabled import lists
from bot.evidence.disabled.tables import CANDIDATE, ISSUE, CandidateRow, DisablingRow, ci_disabling
from bot.ingest import repositories
from bot.ingest.tables import records
from bot.oot.allowlist import versions as allowlists

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.evidence.disabled.lists import Tests
    from bot.evidence.tests.tables import EnvRow, TestJobRow

ISSUES_MOST = 5_000  # of a repository, the oldest first: opening more does not push them out
LEAST_LEVEL = 2  # of a backend: results of L1 are shown nowhere
REPOSITORY = records["repository"].c
_WORD = re.compile(r"[a-z]+|[0-9]+")
LISTED = re.compile(r"(?P<name>\S+) \((?P<suite>\S+)\)")
SYSTEMS = {"windows": "win", "macos": "mac"}  # as the lists call them, beside their own names
EVERYWHERE: frozenset[str] = frozenset()


async def listing_repositories(tx: Transaction, settings: Settings) -> dict[int, str]:
    """Return the repositories whose issues count: upstream, and the backends whose results are shown."""
    listed = await allowlists.read_in_force(tx)
    backends = [entry.repo for entry in (listed.entries if listed else ()) if entry.level >= LEAST_LEVEL]
    names = {name.casefold() for name in (*settings.upstream_repo, *backends)}
    query = sa.select(REPOSITORY.repository_id, REPOSITORY.full_name)
    query = query.where(sa.func.lower(REPOSITORY.full_name).in_(sorted(names)))
    full_names = {row.repository_id: row.full_name for row in await tx.run(query)}
    ours: dict[int, str] = {}
    for name in names:
        ids = await repositories.read_ids(tx, name)
        ours |= {
            identifier: full
            for identifier, full in full_names.items()
            if identifier in ids and full.casefold() == name
        }
    return ours


async def devices(tx: Transaction) -> frozenset[str]:
    """Return the devices of the allowlist in force, case-folded."""
    listed = await allowlists.read_in_force(tx)
    return frozenset(entry.device.casefold() for entry in (listed.entries if listed else ()) if entry.device)


async def candidate_issues(tx: Transaction, repository_id: int) -> list[CandidateRow]:
    """Return the open issues whose titles may disable something, the oldest first."""
    issues = select(CandidateRow, records["issue"], author=ISSUE.user_login, url=ISSUE.html_url)
    query = issues.where(CANDIDATE, ISSUE.repository_id == repository_id, ISSUE.deleted_at.is_(None))
    query = query.where(ISSUE.number.is_not(None)).order_by(ISSUE.number).limit(ISSUES_MOST)
    return await tx.fetch(query)


async def disabling_issues(tx: Transaction, repository_id: int) -> list[DisablingRow]:
    """Return the issues of a repository as they were read, by number."""
    query = select(DisablingRow, ci_disabling).where(ci_disabling.c.repository_id == repository_id)
    return await tx.fetch(query.order_by(ci_disabling.c.number))


async def effective_issues(tx: Transaction, repository_id: int) -> list[DisablingRow]:
    """Return the effective issues of a repository, by number."""
    c = ci_disabling.c
    query = select(DisablingRow, ci_disabling).where(c.repository_id == repository_id, c.listed)
    return await tx.fetch(query.order_by(c.number))


async def find_issue(tx: Transaction, repository_id: int, number: int) -> DisablingRow | None:
    """Return an issue as it was read."""
    query = select(DisablingRow, ci_disabling).where(
        ci_disabling.c.repository_id == repository_id, ci_disabling.c.number == number
    )
    return await tx.fetch_first(query)


async def known_numbers(tx: Transaction, keys: Collection[tuple[int, int]]) -> set[tuple[int, int]]:
    """Return which of these issues (repository, number) were read as disabling something."""
    columns = (ci_disabling.c.repository_id, ci_disabling.c.number)
    known = await tx.run(sa.select(*columns).where(tx.among(columns, sorted(keys))))
    return {(row.repository_id, row.number) for row in known}


async def replace_issues(tx: Transaction, repository_id: int, issues: Sequence[DisablingRow]) -> None:
    """Replace the stored issues of a repository."""
    known = {row["number"]: row for row in await disabling_issues(tx, repository_id)}
    gone = sorted(known.keys() - {row["number"] for row in issues})
    if gone:
        mine = ci_disabling.c.repository_id == repository_id
        await tx.run(
            sa.delete(ci_disabling).where(mine, tx.among([ci_disabling.c.number], [(n,) for n in gone]))
        )
    changed = [row for row in issues if _plain(row) != _plain(known.get(row["number"]))]
    tx.note_changed("ci_disabling", [*(known[number] for number in gone), *changed])
    if changed:
        names = [column.name for column in ci_disabling.c if not column.primary_key]
        await tx.upsert(ci_disabling, changed, replaced=names)


class DisabledHere:
    """The disabled tests of a repository, with their platforms."""

    def __init__(self, tests: Tests) -> None:
        self._platforms = {
            (matched["name"], matched["suite"].rpartition(".")[2]): frozenset(platforms)
            for entry, (_, _, platforms) in tests.items()
            if (matched := LISTED.fullmatch(entry))
        }

    def has(self, suite: str, name: str, platforms: Collection[str]) -> bool:
        """Whether a test is disabled on one of these platforms."""
        on = self._platforms.get((name, suite.rpartition(".")[2]))
        return on is not None and (on == EVERYWHERE or bool(on & set(platforms)))


def platforms_of(job: TestJobRow, env: EnvRow | None) -> set[str]:
    """Return the names that lists may use for a job's platform."""
    platforms = set(_WORD.findall(f"{job['workflow']} {job['name']}".lower()))
    if env:
        platforms |= {env["os"], env["accelerator"], SYSTEMS.get(env["os"], "")}
    return platforms - {""}


async def disabled_in_repository(
    tx: Transaction, repository_id: int, upstream_id: int, device: str | None
) -> DisabledHere:
    """Read what is disabled in a repository: its own list and, for a backend, upstream's entries for its device."""
    own = lists.disabled_tests(await disabling_issues(tx, repository_id))
    if upstream_id in {0, repository_id}:
        return DisabledHere(own)
    upstream = lists.disabled_tests(await disabling_issues(tx, upstream_id))
    return DisabledHere(lists.for_backend(upstream, own, device))


def _plain(row: DisablingRow | None) -> dict[str, Any] | None:
    """Return a row in the form in which it is stored."""
    if row is None:
        return None
    entries = [[name, list(platforms)] for name, platforms in row["entries"]]
    return {**row, "entries": entries, "problems": list(row["problems"])}
