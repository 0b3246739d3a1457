"""The index of words: titles are stored with their words, and found by the beginnings of words."""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, TypedDict

import sqlalchemy as sa

from bot.db.rows import Big, Bytes, Text, select, table

if TYPE_CHECKING:
    from collections.abc import Collection

    from bot.db.transaction import Transaction

WORDS_MOST = 40  # of one text
LONGEST_WORD = 60  # bytes of one word
TEXT_MOST = 400  # characters that are kept of a text
_WORD = re.compile(r"\w+")
_PART = re.compile(r"[^\W_]+")
CANDIDATES = 1_000  # titles that have the rarest word, and are looked at
READ_FOR_EACH = 20  # titles that have the further words anywhere, for each that is wanted
ASKED_MOST = 8  # words of one search
LOOKED_AT = 2_000  # titles that are looked at together, whether there is still what they are of
HOUR = 3_600_000  # milliseconds
TITLE_KEY = ("kind", "repository_id", "ref")
TitleKey = tuple[str, int, str]


class _Id(TypedDict):
    id: Big  # grows: what was first heard of later has the greater one


class Title(TypedDict):
    """A title and its object."""

    kind: Text  # pull, commit, failure
    repository_id: Big  # 0: of none
    ref: Text  # its number, SHA or signature
    text: Text


class TitleRow(_Id, Title):
    """A title that is found by its words."""


title = table(
    "word_title",
    TitleRow,
    sa.UniqueConstraint("kind", "repository_id", "ref", name="uq_word_title"),
    key=("id",),
)


class WordRow(TypedDict):
    """A word of a title."""

    kind: Text  # of the title
    word: Bytes  # UTF-8, so that both databases have the same order
    title_id: Big


word = table("word", WordRow, key=("kind", "word", "title_id"))
TITLE, WORD = title.c, word.c


def words_of(text: str) -> set[bytes]:
    """Return the words of a text in lower case; a name joined by underscores counts as its parts, too."""
    listed: dict[str, None] = {}
    for word in _WORD.findall(text[:TEXT_MOST].casefold()):
        listed[word] = None
        listed |= dict.fromkeys(_PART.findall(word))
    return {encode(word) for word in [*listed][:WORDS_MOST]} - {b""}


def asked_words(text: str) -> list[bytes]:
    """Return the words that a search is for, each once."""
    return list(dict.fromkeys(encode(word) for word in _WORD.findall(text.casefold())))


def encode(word: str) -> bytes:
    """Encode a word for storage, cut to its limit but never within a character."""
    return word.encode()[:LONGEST_WORD].decode(errors="ignore").encode()


def end_of_prefix(word: bytes) -> bytes:
    """Complete a prefix: return the first value after all words that begin with it."""
    return word + b"\xff"  # is in no UTF-8


def begins_each(wanted: list[bytes], text: str) -> bool:
    """Whether each of these is the beginning of a word of a text."""
    known = words_of(text)
    return all(any(word.startswith(beginning) for word in known) for beginning in wanted)


async def put_titles(tx: Transaction, titles: Collection[Title]) -> None:
    """Store titles, and replace those that have changed."""
    wanted = {
        (given["kind"], given["repository_id"], given["ref"]): given["text"][:TEXT_MOST] for given in titles
    }
    if not wanted:
        return
    known = {_title_key(row): row for row in await _read_titles(tx, [*wanted])}
    changed = {key: text for key, text in wanted.items() if key not in known or known[key]["text"] != text}
    if not changed:
        return
    rows = [dict(zip(TITLE_KEY, key, strict=True)) | {"text": changed[key]} for key in sorted(changed)]
    await tx.upsert(title, rows, replaced=("text",), index=TITLE_KEY)
    made = []
    for row in await _read_titles(tx, [*changed]):
        before = words_of(known[_title_key(row)]["text"]) if _title_key(row) in known else set()
        here = words_of(row["text"])
        await _forget_words(tx, row, before - here)
        made += [
            {"kind": row["kind"], "word": title_word, "title_id": row["id"]} for title_word in here - before
        ]
    if made:
        await tx.upsert(word, sorted(made, key=lambda row: (row["kind"], row["word"], row["title_id"])))


async def find_titles(
    tx: Transaction, kind: str, text: str, *, owners: Collection[int], limit: int
) -> list[TitleRow]:
    """Return titles of some repositories in which each word of a text is the beginning of a word, newest first.

    Where very many titles have even the rarest word, only the newest that have exactly this word are looked at.
    """
    wanted = asked_words(text)[:ASKED_MOST]
    if not wanted or not owners:
        return []
    counts = [await _count(tx, kind, prefix) for prefix in wanted] if len(wanted) > 1 else [0]
    rarest = wanted[counts.index(min(counts))]
    having = TITLE.id.in_(_candidates(kind, rarest)), TITLE.repository_id.in_(sorted(owners))
    query = select(TitleRow, title).where(*having).order_by(TITLE.id.desc())
    if len(wanted) == 1:
        return await tx.fetch(query.limit(limit))
    for prefix in wanted:
        if prefix.isascii():  # databases fold no other letters alike
            query = query.where(TITLE.text.icontains(prefix.decode(), autoescape=True))
    some = await tx.fetch(query.limit(READ_FOR_EACH * limit))
    fitting = (row for row in some if begins_each(wanted, row["text"]))
    return list(islice(fitting, limit))


async def forget_titles(tx: Transaction, kind: str, *, kept: sa.ColumnElement[bool]) -> int:
    """Delete some titles whose objects no longer exist; returns how many.

    `kept` is the condition, over the columns of `title`, that a title's object exists. Each hour has its share of
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


async def _read_titles(tx: Transaction, keys: Collection[TitleKey]) -> list[TitleRow]:
    these = tx.among([TITLE[name] for name in TITLE_KEY], sorted(keys))
    return await tx.fetch(select(TitleRow, title).where(these))


def _title_key(row: TitleRow) -> TitleKey:
    return row["kind"], row["repository_id"], row["ref"]


async def _forget_words(tx: Transaction, row: TitleRow, words: Collection[bytes]) -> None:
    these = (WORD.kind == row["kind"], WORD.title_id == row["id"], WORD.word.in_(sorted(words)))
    if words:
        await tx.run(sa.delete(word).where(*these))


async def _count(tx: Transaction, kind: str, wanted: bytes) -> int:
    """Count the words with this beginning, up to one more than are looked at."""
    some = sa.select(sa.literal(1)).where(*_begins(kind, wanted)).limit(CANDIDATES + 1).subquery()
    return int((await tx.run(sa.select(sa.func.count()).select_from(some))).scalar_one())


def _candidates(kind: str, wanted: bytes) -> sa.CompoundSelect[tuple[int]]:
    """Return titles with a word of this beginning: the newest with exactly this word, and the first of the others."""
    ids = sa.select(WORD.title_id).limit(CANDIDATES)
    exact = ids.where(WORD.kind == kind, WORD.word == wanted).order_by(WORD.title_id.desc()).subquery()
    begun = ids.where(*_begins(kind, wanted)).subquery()
    return sa.union(sa.select(exact.c.title_id), sa.select(begun.c.title_id))


def _begins(kind: str, wanted: bytes) -> tuple[sa.ColumnElement[bool], ...]:
    return WORD.kind == kind, WORD.word >= wanted, WORD.word < end_of_prefix(wanted)
