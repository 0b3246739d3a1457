"""The tables of titles and of their words."""

from __future__ import annotations

from typing import TypedDict

import sqlalchemy as sa

from bot.db.rows import Big, Bytes, Text, table


class _Id(TypedDict):
    id: Big  # grows: what was first heard of later has the greater one


class Title(TypedDict):
    """A title, and what it is of."""

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
