"""The ids of tests: looked up by digest, given to new tests within the daily quota of untrusted runs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec
import sqlalchemy as sa

from bot.db.rows import select
from bot.evidence.tests.parse.cases import Declared
from bot.evidence.tests.parse.texts import DIGEST, canonical
from bot.evidence.tests.rows import DAY
from bot.evidence.tests.tables import QuotaRow, test, test_class, test_quota

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.evidence.tests.parse.block import MergedGroup

BATCH = 500  # rows of one statement
NEW_MOST = 50_000  # tests that an untrusted job may bring
ROW_BYTES = 200  # of a test beside its name
PAUSE = 0.02  # seconds between two transactions
X = TypeVar("X")
TEST, CLASS = test.c, test_class.c
ROWS_A_DAY = 1_000_000
BYTES_A_DAY = 256 * 1024 * 1024
QUOTA = test_quota.c


class KnownIds(NamedTuple):
    """The ids of a job's tests and suites."""

    tests: dict[bytes, int]  # by digest
    classes: dict[tuple[str, str], int]  # by file and suite


class Sighting(NamedTuple):
    """Where and when tests were seen."""

    repository_id: int
    seen_at: int
    trusted: bool

    @property
    def day(self) -> int:
        """The beginning of that day."""
        return self.seen_at - self.seen_at % DAY


class TooManyNew(Exception):
    """An untrusted run brought too many new tests. The message names the limit."""


async def ids_of_groups(
    context: Context, groups: Sequence[MergedGroup], seen: Sighting, devices: Collection[str]
) -> KnownIds:
    """Return the ids of all tests of a job; store new tests, and when each was seen.

    Raises TooManyNew where a run that is not trusted brings very many unknown tests, before these are looked up.
    """
    tests: dict[bytes, int] = {}
    digests = await asyncio.to_thread(_all_digests, groups)
    if not seen.trusted and len(digests) > NEW_MOST:
        async with context.store.read() as tx:
            known = await _count_tests(tx, seen.repository_id, most=len(digests))
        _check_new(len(digests) - known)
    for at, some in enumerate(in_batches(digests), start=1):
        await _look_up(context, some, seen, tests)
        if not seen.trusted:
            _check_new(min(at * BATCH, len(digests)) - len(tests))
    new: list[dict[str, Any]] = []
    if len(tests) < len(digests):
        new = await asyncio.to_thread(_new, groups, tests, seen, frozenset(devices))
    if new and not seen.trusted:
        await _take_quota(context, seen, new)
    classes = await _classes(context, groups, seen)
    for some_rows in in_batches(new):
        rows = [
            {name: value for name, value in row.items() if name != "place"}
            | {"class_id": classes[row["place"]]}
            for row in some_rows
        ]
        await _insert(context, rows, seen, tests)
    return KnownIds(tests, classes)


def in_batches(items: Sequence[X], size: int = BATCH) -> Iterator[Sequence[X]]:
    """Yield items in batches."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


async def take_quota(tx: Transaction, repository_id: int, *, rows: int, size: int) -> bool:
    """Charge rows and bytes to today's quota; return False and charge nothing if that exceeds it."""
    today = tx.now // DAY
    mine = (QUOTA.repository_id == repository_id, QUOTA.day == today)
    await tx.run(
        tx.insert(test_quota)
        .values(repository_id=repository_id, day=today, stored=0, bytes=0)
        .on_conflict_do_nothing()
    )
    known = await tx.fetch_first(select(QuotaRow, test_quota).where(*mine).with_for_update())
    assert known
    stored, total = known["stored"] + rows, known["bytes"] + size
    if stored > ROWS_A_DAY or total > BYTES_A_DAY:
        return False
    await tx.run(sa.update(test_quota).where(*mine).values(stored=stored, bytes=total))
    return True


def _check_new(new: int) -> None:
    if new > NEW_MOST:
        raise TooManyNew(f"over {NEW_MOST:,} tests that no trusted run had")


async def _count_tests(tx: Transaction, repository_id: int, *, most: int) -> int:
    """Count the known tests of a repository, up to `most`."""
    some = sa.select(TEST.id).where(TEST.repository_id == repository_id).limit(most).subquery()
    return int((await tx.run(sa.select(sa.func.count()).select_from(some))).scalar_one())


async def _take_quota(context: Context, seen: Sighting, new: Sequence[dict[str, Any]]) -> None:
    size = sum(len(row["name"].encode(errors="replace")) + ROW_BYTES for row in new)
    async with context.store.transaction() as tx:
        taken = await take_quota(tx, seen.repository_id, rows=len(new), size=size)
    if not taken:
        raise TooManyNew("runs that are not trusted brought too many new tests today")


def _all_digests(groups: Sequence[MergedGroup]) -> list[bytes]:
    return list(dict.fromkeys(digest for group in groups for digest in _digests(group)))


def _digests(group: MergedGroup) -> list[bytes]:
    return [group.digests[at : at + DIGEST] for at in range(0, len(group.digests), DIGEST)]


async def _classes(
    context: Context, groups: Iterable[MergedGroup], seen: Sighting
) -> dict[tuple[str, str], int]:
    known: dict[tuple[str, str], int] = {}
    places = sorted({(group.file, group.suite) for group in groups})
    for some in in_batches(places):
        async with context.store.read() as tx:
            stale = await _known_classes(tx, some, seen, known)
        new = [place for place in some if place not in known]
        if not new and not stale:
            continue
        async with context.store.transaction() as tx:
            if stale:
                changed = sa.update(test_class).where(CLASS.id.in_(stale), CLASS.last_at < seen.day)
                await tx.run(changed.values(last_at=seen.day))
            if new:
                rows = [
                    {"repository_id": seen.repository_id, "file": file, "suite": suite, "last_at": seen.day}
                    for file, suite in new
                ]
                await tx.upsert(test_class, rows)
                await _known_classes(tx, new, seen, known)
        await context.clock.sleep(PAUSE)
    return known


async def _known_classes(
    tx: Transaction, places: Sequence[tuple[str, str]], seen: Sighting, known: dict[tuple[str, str], int]
) -> list[int]:
    """Add the ids of known suites; return those last seen on an earlier day."""
    query = sa.select(CLASS.id, CLASS.file, CLASS.suite, CLASS.last_at).where(
        CLASS.repository_id == seen.repository_id, tx.among((CLASS.file, CLASS.suite), list(places))
    )
    stale = []
    for row in await tx.run(query):
        known[row.file, row.suite] = row.id
        if row.last_at < seen.day:
            stale.append(row.id)
    return stale


async def _look_up(
    context: Context, digests: Sequence[bytes], seen: Sighting, tests: dict[bytes, int]
) -> None:
    """Add the ids of known tests, and mark those seen for the first time today."""
    async with context.store.read() as tx:
        stale = await _known_tests(tx, digests, seen, tests)
    if stale:
        async with context.store.transaction() as tx:
            await tx.run(sa.update(test).where(TEST.id.in_(stale)).values(_marks(tx, seen)))
        await context.clock.sleep(PAUSE)


async def _known_tests(
    tx: Transaction, digests: Sequence[bytes], seen: Sighting, tests: dict[bytes, int]
) -> list[int]:
    first = TEST.trusted_first_at if seen.trusted else TEST.first_at
    last = TEST.trusted_last_at if seen.trusted else TEST.last_at
    query = sa.select(TEST.id, TEST.digest, first, last).where(
        TEST.repository_id == seen.repository_id, TEST.digest.in_(digests)
    )
    stale = []
    for identifier, digest, first_at, last_at in await tx.run(query):
        tests[digest] = identifier
        if last_at is None or last_at < seen.day or first_at is None or first_at > seen.seen_at:
            stale.append(identifier)
    return stale


def _marks(tx: Transaction, seen: Sighting) -> dict[str, Any]:
    """Return the columns to update when tests are seen; the order of updates does not matter."""
    least, most = ("min", "max") if tx.sqlite else ("least", "greatest")
    smaller, greater = getattr(sa.func, least), getattr(sa.func, most)
    values = {"first_at": smaller(TEST.first_at, seen.seen_at), "last_at": greater(TEST.last_at, seen.day)}
    if seen.trusted:
        values |= {
            "trusted_first_at": smaller(sa.func.coalesce(TEST.trusted_first_at, seen.seen_at), seen.seen_at),
            "trusted_last_at": greater(sa.func.coalesce(TEST.trusted_last_at, seen.day), seen.day),
        }
    return values


def _new(
    groups: Sequence[MergedGroup], tests: dict[bytes, int], seen: Sighting, devices: frozenset[str]
) -> list[dict[str, Any]]:
    """Return rows for the unknown tests, each with its file and suite as `place`."""
    new: dict[bytes, dict[str, Any]] = {}
    for group in groups:
        digests = _digests(group)
        if all(digest in tests for digest in digests):
            continue
        names = msgspec.msgpack.decode(group.names, type=list[str])
        for digest, name in zip(digests, names, strict=True):
            if digest in tests or digest in new:
                continue
            declared = group.declared.get(name, Declared("", ""))
            new[digest] = {
                "repository_id": seen.repository_id,
                "place": (group.file, group.suite),
                "digest": digest,
                "canonical": canonical(group.file, group.suite, declared.name or name, devices=devices),
                "name": name,
                "declared_name": declared.name if declared.name not in {"", name} else None,
                "language": declared.language or None,
                "first_at": seen.seen_at,
                "last_at": seen.day,
                "trusted_first_at": seen.seen_at if seen.trusted else None,
                "trusted_last_at": seen.day if seen.trusted else None,
            }
    return list(new.values())


async def _insert(
    context: Context, rows: Sequence[dict[str, Any]], seen: Sighting, tests: dict[bytes, int]
) -> None:
    async with context.store.transaction() as tx:
        insert = tx.insert(test)
        marks = _marks(tx, seen)
        keys = ["repository_id", "digest"]
        # ordered, so that no two transactions wait for each other
        ordered = sorted(rows, key=lambda row: row["digest"])
        await tx.run(insert.on_conflict_do_update(index_elements=keys, set_=marks), ordered)
        await _known_tests(tx, [row["digest"] for row in rows], seen, tests)
    await context.clock.sleep(PAUSE)
