"""Storing titles with their words, and finding titles by the beginnings of words."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.db.rows import select
from bot.word_index.tables import Title, TitleRow, title, word
from bot.word_index.words import TEXT_MOST, after, asked_words, begins_each, words_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from bot.db.transaction import Transaction

TITLE, WORD = title.c, word.c
CANDIDATES = 1_000  # titles that have the rarest word, and are looked at
READ_FOR_EACH = 20  # titles that have the further words anywhere, for each that is wanted
ASKED_MOST = 8  # words of one search
LOOKED_AT = 2_000  # titles that are looked at together, whether there is still what they are of
HOUR = 3_600_000  # milliseconds
KEY = ("kind", "repository_id", "ref")
Key = tuple[str, int, str]


async def put_titles(tx: Transaction, titles: Collection[Title]) -> None:
    """Store titles, and replace those that have changed."""
    wanted = {(one["kind"], one["repository_id"], one["ref"]): one["text"][:TEXT_MOST] for one in titles}
    if not wanted:
        return
    known = {_key(row): row for row in await _read(tx, [*wanted])}
    changed = {key: text for key, text in wanted.items() if key not in known or known[key]["text"] != text}
    if not changed:
        return
    rows = [dict(zip(KEY, key, strict=True)) | {"text": changed[key]} for key in sorted(changed)]
    await tx.upsert(title, rows, replaced=("text",), index=KEY)
    made = []
    for row in await _read(tx, [*changed]):
        before = words_of(known[_key(row)]["text"]) if _key(row) in known else set()
        here = words_of(row["text"])
        await _forget_words(tx, row, before - here)
        made += [{"kind": row["kind"], "word": one, "title_id": row["id"]} for one in here - before]
    if made:
        await tx.upsert(word, sorted(made, key=lambda row: (row["kind"], row["word"], row["title_id"])))


async def _read(tx: Transaction, keys: Collection[Key]) -> list[TitleRow]:
    these = tx.among([TITLE[name] for name in KEY], sorted(keys))
    return await tx.fetch(select(TitleRow, title).where(these))


def _key(row: TitleRow) -> Key:
    return row["kind"], row["repository_id"], row["ref"]


async def _forget_words(tx: Transaction, row: TitleRow, words: Collection[bytes]) -> None:
    these = (WORD.kind == row["kind"], WORD.title_id == row["id"], WORD.word.in_(sorted(words)))
    if words:
        await tx.run(sa.delete(word).where(*these))


async def find_titles(
    tx: Transaction, kind: str, text: str, *, owners: Collection[int], limit: int
) -> list[TitleRow]:
    """Return titles of some repositories in which each word of a text begins a word, the newest first.

    Where very many have even the rarest word, only some of them are looked at: the newest that have exactly this word.
    """
    wanted = asked_words(text)[:ASKED_MOST]
    if not wanted or not owners:
        return []
    counts = [await _count(tx, kind, one) for one in wanted] if len(wanted) > 1 else [0]
    rarest = wanted[counts.index(min(counts))]
    having = TITLE.id.in_(_candidates(kind, rarest)), TITLE.repository_id.in_(sorted(owners))
    query = select(TitleRow, title).where(*having).order_by(TITLE.id.desc())
    if len(wanted) == 1:
        return await tx.fetch(query.limit(limit))
    for one in wanted:
        if one.isascii():  # databases fold no other letters alike
            query = query.where(TITLE.text.icontains(one.decode(), autoescape=True))
    some = await tx.fetch(query.limit(READ_FOR_EACH * limit))
    fitting = (row for row in some if begins_each(wanted, row["text"]))
    return list(islice(fitting, limit))


async def forget_titles(tx: Transaction, kind: str, *, kept: sa.ColumnElement[bool]) -> int:
    """Delete some titles of which there is nothing any more; returns how many.

    `kept` is the condition, over the columns of `title`, that what a title is of is there. Each hour has its turn of
    titles, so that all are looked at in time.
    """
    first, last = (await tx.run(sa.select(sa.func.min(TITLE.id), sa.func.max(TITLE.id)))).one()
    if first is None:
        return 0
    start = first + tx.now // HOUR * LOOKED_AT % (last - first + 1)
    these = TITLE.id.between(start, start + LOOKED_AT - 1)
    rows = await tx.fetch(select(TitleRow, title).where(these, TITLE.kind == kind, ~kept))
    for row in rows:
        await _forget_words(tx, row, words_of(row["text"]))
    await tx.run(sa.delete(title).where(TITLE.id.in_([row["id"] for row in rows])))
    return len(rows)


async def _count(tx: Transaction, kind: str, wanted: bytes) -> int:
    """Return how many words begin so; one more than are looked at stands for all above."""
    some = sa.select(sa.literal(1)).where(*_begins(kind, wanted)).limit(CANDIDATES + 1).subquery()
    return int((await tx.run(sa.select(sa.func.count()).select_from(some))).scalar_one())


def _candidates(kind: str, wanted: bytes) -> sa.CompoundSelect[tuple[int]]:
    """Return titles with a word that begins so: the newest that have exactly this one, and the first of the others."""
    ids = sa.select(WORD.title_id).limit(CANDIDATES)
    exact = ids.where(WORD.kind == kind, WORD.word == wanted).order_by(WORD.title_id.desc()).subquery()
    begun = ids.where(*_begins(kind, wanted)).subquery()
    return sa.union(sa.select(exact.c.title_id), sa.select(begun.c.title_id))


def _begins(kind: str, wanted: bytes) -> tuple[sa.ColumnElement[bool], ...]:
    return WORD.kind == kind, WORD.word >= wanted, WORD.word < after(wanted)
