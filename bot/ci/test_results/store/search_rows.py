"""Tests and suites by the beginning of their names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.ci.test_results.store.rows import TESTS
from bot.ci.test_results.tables import SuiteRow, test, test_class
from bot.db.columns import begins
from bot.db.rows import select

if TYPE_CHECKING:
    from collections.abc import Collection

    from bot.ci.test_results.tables import TestRow
    from bot.db.transaction import Transaction

TEST, SUITE = test.c, test_class.c
LOOKED_AT = 1_000  # tests whose name begins so, of all repositories
SCANNED = 20_000  # suites


async def tests_by_name(tx: Transaction, owners: Collection[int], start: str, *, limit: int) -> list[TestRow]:
    """Return tests of some repositories whose name begins so."""
    some = sa.select(TEST.id).where(begins(TEST.name, start, sqlite=tx.sqlite)).limit(LOOKED_AT)
    ids = list((await tx.run(some)).scalars())
    query = TESTS.where(TEST.id.in_(ids), TEST.repository_id.in_(sorted(owners)))
    order = (sa.func.length(TEST.name), TEST.name, TEST.last_at.desc(), TEST.id)
    return await tx.fetch(query.order_by(*order).limit(limit))


async def suites_by_name(
    tx: Transaction, owners: Collection[int], text: str, *, limit: int
) -> list[SuiteRow]:
    """Return suites that have a text in their name or file, of those first seen last."""
    newest = sa.select(test_class).where(SUITE.repository_id.in_(sorted(owners)))
    some = newest.order_by(SUITE.id.desc()).limit(SCANNED).subquery()
    there = some.c.suite.icontains(text, autoescape=True) | some.c.file.icontains(text, autoescape=True)
    query = select(SuiteRow, some).where(there)
    return await tx.fetch(query.order_by(some.c.last_at.desc(), some.c.id).limit(limit))
