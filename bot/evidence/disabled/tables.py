"""Tables of disabled tests and jobs: issues as read, lists made of them, and issues that pull requests close."""

from __future__ import annotations

from typing import TypedDict

import sqlalchemy as sa

from bot.db.rows import Big, Bool, Bytes, Int, Json, Millis, Text, partial_index, table
from bot.ingest.tables import records

ISSUE = records["issue"].c
# issues that are about CI, by their first word; literals, since a partial index serves only its own condition
_FIRST = sa.func.substr(ISSUE.title, sa.literal_column("1"), sa.literal_column("9"))
CANDIDATE = sa.and_(
    ISSUE.state == sa.literal_column("'open'"),
    _FIRST.in_([sa.literal_column("'DISABLED '"), sa.literal_column("'UNSTABLE '")]),
)
CLOSED = sa.and_(ISSUE.state == sa.literal_column("'closed'"), _FIRST.in_([sa.literal_column("'DISABLED '")]))
partial_index("ix_issue_disabling", ISSUE.repository_id, ISSUE.number, where=CANDIDATE)
partial_index("ix_issue_disabled", ISSUE.repository_id, ISSUE.title, where=CLOSED)


class _Identity(TypedDict):
    repository_id: Big


class _Number(TypedDict):
    number: Big


class _Effect(TypedDict):
    kind: Text  # test | job
    unstable: Bool  # the job may fail; else it, or the tests, are skipped


class _Shown(TypedDict):
    title: Text
    author: Text | None
    url: Text | None


class _Understood(TypedDict):
    listed: Bool  # whether it has an effect
    entries: Json[list[tuple[str, list[str]]]]  # a name and the platforms, none: all
    problems: Json[list[str]]  # what was not understood, or why it has no effect


class _Times(TypedDict):
    created_at: Millis | None
    updated_at: Millis | None


class DisablingRow(_Identity, _Number, _Effect, _Shown, _Understood, _Times):
    """An open issue that names tests or a job, as it was read."""


class CandidateRow(_Number, _Shown, _Times):
    """An open issue whose title may disable something."""

    body: str | None
    author_association: str | None


ci_disabling = table("ci_disabling", DisablingRow, key=("repository_id", "number"))


class AnswerRow(TypedDict):
    """Our answer on such an issue."""

    repository_id: Big
    number: Big
    comment_id: Big | None  # null: intended, perhaps created
    digest: Text  # of what was written last
    writing_until: Millis  # see bot.oot.publish.rows
    lost_until: Millis


ci_disabling_comment = table("ci_disabling_comment", AnswerRow, key=("repository_id", "number"))


class ListMark(TypedDict):
    """The version of a list: with the same mark, the list and its sources are the same."""

    repository_id: Big
    name: Text
    etag: Text
    made_at: Millis


class ListRow(ListMark):
    """A list as it is sent."""

    body: Bytes  # last, with the next: SQLite reads a row up to the column it is asked for
    gzipped: Bytes  # empty where it is small


ci_list = table("ci_list", ListRow, key=("repository_id", "name"))


class _Day(TypedDict):
    day: Int  # since 1970, UTC
    tests: Json[list[tuple[str, int, list[str]]]]  # name, issue, and platforms, none: all
    made_at: Millis


class DisabledDayRow(_Identity, _Day):
    """The tests that were disabled when a day's list was last made."""


ci_disabled_day = table(
    "ci_disabled_day", DisabledDayRow, sa.Index("ix_ci_disabled_day_day", "day"), key=("repository_id", "day")
)


class PullClosesRow(TypedDict):
    """The issues that the commit messages of a pull request close."""

    repository_id: Big
    number: Big
    head_sha: Text  # the head whose commits were read
    issues: Json[list[tuple[str, int]]]  # pairs of a repository, case folded, and a number


ci_pull_closes = table("ci_pull_closes", PullClosesRow, key=("repository_id", "number"))
