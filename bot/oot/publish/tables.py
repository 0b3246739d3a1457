"""Tables of the check runs, comments and mentions we wrote, and of merge groups."""

from __future__ import annotations

from typing import TypedDict

import sqlalchemy as sa

from bot.db.rows import Big, Bool, Millis, Text, partial_index, table
from bot.ingest.tables import records


class CheckRow(TypedDict):
    """A check run of ours."""

    external_id: Text
    upstream_repo: Text
    pr_number: Big | None
    head_sha: Text
    name: Text
    check_run_id: Big | None  # null: intended, perhaps created
    status: Text
    conclusion: Text | None
    digest: Text  # of the body last written
    created_at: Millis
    written_at: Millis
    writing_until: Millis  # until then the process that began may still be creating it; 0: none is
    lost_until: Millis  # until then GitHub may be executing a request that is no longer waited for
    label_ended: Bool  # concluded neutral only because the label was removed
    basis: Text  # what the verdict is about: a new basis may begin a new check run


oot_check = table("oot_check", CheckRow, key=("external_id",))
sa.Index("ix_oot_check_pull", oot_check.c.upstream_repo, oot_check.c.pr_number)
sa.Index("ix_oot_check_name", oot_check.c.upstream_repo, oot_check.c.name)
sa.Index("ix_oot_check_head", oot_check.c.head_sha)
sa.Index("ix_oot_check_run", oot_check.c.check_run_id)
# literal in statements too: SQLite uses the partial index only for the same expression
UNFINISHED = oot_check.c.status != sa.literal_column("'completed'")
partial_index("ix_oot_check_unfinished", oot_check.c.name, oot_check.c.created_at, where=UNFINISHED)


# an open pull request that asks for fewer check runs; literal, as above
PULL = records["pull_request"].c
_begins = sa.func.substr(PULL.head_ref, sa.literal_column("1"), sa.literal_column("14"))
DEMOTES = sa.and_(PULL.state == sa.literal_column("'open'"), _begins == sa.literal_column("'crcr-demotion/'"))
partial_index("ix_pull_request_demotes", PULL.repository_id, PULL.head_ref, where=DEMOTES)


class CommentRow(TypedDict):
    """Our comment on a pull request."""

    upstream_repo: Text
    pr_number: Big
    comment_id: Big | None  # null: intended, perhaps created
    digest: Text
    written_at: Millis
    writing_until: Millis  # as above
    lost_until: Millis


oot_comment = table("oot_comment", CommentRow, key=("upstream_repo", "pr_number"))


class RefusalRow(TypedDict):
    """A repository where the App may not comment."""

    upstream_repo: Text
    reason: Text  # why GitHub lets the App write no comment there
    refused_at: Millis  # last


oot_comment_refusal = table("oot_comment_refusal", RefusalRow, key=("upstream_repo",))


class MentionRow(TypedDict):
    """An on-call mention in our comment."""

    upstream_repo: Text
    pr_number: Big
    head_sha: Text
    backend_key: Text
    over: Bool  # the comment no longer has it: never mentioned again on this head
    created_at: Millis


oot_mention = table(
    "oot_mention",
    MentionRow,
    key=("upstream_repo", "pr_number", "head_sha", "backend_key"),
)


class MergeGroupRow(TypedDict):
    """A commit of a merge queue."""

    upstream_repo: Text
    head_sha: Text
    base_sha: Text | None  # what it builds on: the group before it, else the base branch
    pr_number: Big  # the pull request whose turn it is
    created_at: Millis
    # merged, or taken out of the queue; its event can arrive before the one that began it
    ended_at: Millis | None
    base_ref: Text | None  # the base branch, without refs/heads/
    merged: Bool | None  # it is on the base branch now
    base_known: Bool | None  # GitHub said that base_sha is on the base branch
    asked_at: Millis | None  # when GitHub was asked that


oot_merge_group = table("oot_merge_group", MergeGroupRow, key=("upstream_repo", "head_sha"))
sa.Index("ix_oot_merge_group_pull", oot_merge_group.c.upstream_repo, oot_merge_group.c.pr_number)
