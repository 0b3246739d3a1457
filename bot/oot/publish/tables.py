"""Tables of the check runs, comments and mentions we wrote, merge groups, changed files."""

from __future__ import annotations

import sqlalchemy as sa

from bot.db.columns import Big, Json, metadata
from bot.db.columns import column as _column
from bot.db.columns import must as _must

oot_check = sa.Table(
    "oot_check",
    metadata,
    sa.Column("external_id", sa.Text, primary_key=True),
    _must("upstream_repo", sa.Text),
    _column("pr_number", Big),
    _must("head_sha", sa.Text),
    _must("name", sa.Text),
    _column("check_run_id", Big),  # null: intended, perhaps created
    _must("status", sa.Text),
    _column("conclusion", sa.Text),
    _must("digest", sa.Text),  # of the body last written
    _must("created_at", Big),
    _must("written_at", Big),
    _must("writing_until", Big),  # until then the process that began may still be creating it; 0: none is
    _must("lost_until", Big),  # until then GitHub may be executing a request nobody waits for any more
    _must("label_ended", sa.Boolean),  # concluded neutral only because the label was removed
    _must("basis", sa.Text),  # what the verdict is about: a new basis may begin a new check run
)


sa.Index("ix_oot_check_pull", oot_check.c.upstream_repo, oot_check.c.pr_number)


sa.Index("ix_oot_check_name", oot_check.c.upstream_repo, oot_check.c.name)


sa.Index("ix_oot_check_head", oot_check.c.head_sha)


sa.Index("ix_oot_check_run", oot_check.c.check_run_id)


oot_comment = sa.Table(
    "oot_comment",
    metadata,
    _must("upstream_repo", sa.Text),
    _must("pr_number", Big),
    _column("comment_id", Big),  # null: intended, perhaps created
    _must("digest", sa.Text),
    _must("written_at", Big),
    _must("writing_until", Big),  # as above
    _must("lost_until", Big),
    sa.PrimaryKeyConstraint("upstream_repo", "pr_number", name="pk_oot_comment"),
)


oot_comment_refusal = sa.Table(
    "oot_comment_refusal",
    metadata,
    sa.Column("upstream_repo", sa.Text, primary_key=True),
    _must("reason", sa.Text),  # why GitHub lets the App write no comment there
    _must("refused_at", Big),  # last
)


oot_mention = sa.Table(
    "oot_mention",
    metadata,
    _must("upstream_repo", sa.Text),
    _must("pr_number", Big),
    _must("head_sha", sa.Text),
    _must("backend_key", sa.Text),
    _must("over", sa.Boolean),  # the comment no longer has it: never mentioned again on this head
    _must("created_at", Big),
    sa.PrimaryKeyConstraint("upstream_repo", "pr_number", "head_sha", "backend_key", name="pk_oot_mention"),
)


oot_merge_group = sa.Table(
    "oot_merge_group",
    metadata,
    _must("upstream_repo", sa.Text),
    _must("head_sha", sa.Text),
    _column("base_sha", sa.Text),  # what it builds on: the group before it, else the base branch
    _must("pr_number", Big),  # the pull request whose turn it is
    _must("created_at", Big),
    # merged, or taken out of the queue; its event can arrive before the one that began it
    _column("ended_at", Big),
    _column("base_ref", sa.Text),  # the base branch, without refs/heads/
    _column("merged", sa.Boolean),  # it is on the base branch now
    _column("base_known", sa.Boolean),  # GitHub said that base_sha is on the base branch
    _column("asked_at", Big),  # when GitHub was asked that
    sa.PrimaryKeyConstraint("upstream_repo", "head_sha", name="pk_oot_merge_group"),
)


sa.Index("ix_oot_merge_group_pull", oot_merge_group.c.upstream_repo, oot_merge_group.c.pr_number)


oot_changed_files = sa.Table(
    "oot_changed_files",
    metadata,
    _must("upstream_repo", sa.Text),
    _must("pr_number", Big),
    _must("head_sha", sa.Text),
    _must("base_ref", sa.Text),
    _must("paths", Json),
    _must("asked_at", Big),
    sa.PrimaryKeyConstraint("upstream_repo", "pr_number", "head_sha", name="pk_oot_changed_files"),
)
