"""What is kept of what we say on pull requests, and of what people tell us there?"""

from __future__ import annotations

import sqlalchemy as sa

from bot.store.columns import Big, Json, metadata
from bot.store.columns import column as _column
from bot.store.columns import must as _must

oot_check = sa.Table(
    "oot_check",
    metadata,
    sa.Column("external_id", sa.Text, primary_key=True),
    _must("upstream_repo", sa.Text),
    _column("pr_number", Big),
    _must("head_sha", sa.Text),
    _must("name", sa.Text),
    _column("check_run_id", Big),  # null: intended, perhaps made
    _must("status", sa.Text),
    _column("conclusion", sa.Text),
    _must("digest", sa.Text),  # of the body last written
    _must("created_at", Big),
    _must("written_at", Big),
    _must("writing_until", Big),  # until then whoever began to make it may be at it; 0: nobody is
    _must("lost_until", Big),  # until then GitHub may be at what nobody waits for any more
    _must("label_ended", sa.Boolean),  # concluded neutral only because the label went away
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
    _column("comment_id", Big),  # null: intended, perhaps made
    _must("digest", sa.Text),
    _must("written_at", Big),
    _must("writing_until", Big),  # as above
    _must("lost_until", Big),
    sa.PrimaryKeyConstraint("upstream_repo", "pr_number", name="pk_oot_comment"),
)

oot_mention = sa.Table(
    "oot_mention",
    metadata,
    _must("upstream_repo", sa.Text),
    _must("pr_number", Big),
    _must("head_sha", sa.Text),
    _must("backend_key", sa.Text),
    _must("over", sa.Boolean),  # the comment has been without it since: never named live again on this head
    _must("created_at", Big),
    sa.PrimaryKeyConstraint("upstream_repo", "pr_number", "head_sha", "backend_key", name="pk_oot_mention"),
)

oot_command = sa.Table(
    "oot_command",
    metadata,
    _must("upstream_repo", sa.Text),
    _must("comment_id", Big),
    _must("position", sa.Integer),  # within the comment
    _must("pr_number", Big),
    _column("head_sha", sa.Text),  # the pull request's when the command was carried out
    _must("login", sa.Text),
    _must("verb", sa.Text),  # empty when not understood
    _must("text", sa.Text),  # the line as it was written
    _must("state", sa.Text),  # seen | done | refused
    _must("answer", sa.Text),  # a sentence or two for people
    _must("delivery_id", sa.Text),
    _must("created_at", Big),
    sa.PrimaryKeyConstraint("upstream_repo", "comment_id", "position", name="pk_oot_command"),
)
sa.Index("ix_oot_command_pull", oot_command.c.upstream_repo, oot_command.c.pr_number)
sa.Index("ix_oot_command_login", oot_command.c.login, oot_command.c.created_at)

oot_ignore = sa.Table(
    "oot_ignore",
    metadata,
    _must("upstream_repo", sa.Text),
    _must("pr_number", Big),
    _must("head_sha", sa.Text),  # a later head is not ignored
    _column("base_ref", sa.Text),  # nor is this one on another base branch
    _must("backend_key", sa.Text),
    _must("login", sa.Text),
    _must("reason", sa.Text),
    _must("created_at", Big),
    sa.PrimaryKeyConstraint("upstream_repo", "pr_number", "head_sha", "backend_key", name="pk_oot_ignore"),
)

oot_merge_group = sa.Table(
    "oot_merge_group",
    metadata,
    _must("upstream_repo", sa.Text),
    _must("head_sha", sa.Text),
    _column("base_sha", sa.Text),  # what it builds on: the group before it, else the base branch
    _must("pr_number", Big),  # the pull request whose turn it is
    _must("created_at", Big),
    _column("ended_at", Big),  # merged, or taken out of the queue; perhaps heard of before it began
    sa.PrimaryKeyConstraint("upstream_repo", "head_sha", name="pk_oot_merge_group"),
)
sa.Index("ix_oot_merge_group_pull", oot_merge_group.c.upstream_repo, oot_merge_group.c.pr_number)

oot_compared = sa.Table(
    "oot_compared",
    metadata,
    sa.Column("job_key", sa.Text, primary_key=True),
    _must("completed_at", Big),  # the job's: what it reports after all is compared anew
    _must("history", sa.Text),
    _column("url", sa.Text),
    _must("elsewhere", sa.Boolean),
)

oot_merge_base = sa.Table(
    "oot_merge_base",
    metadata,
    _must("upstream_repo", sa.Text),
    _must("head_sha", sa.Text),
    _must("base_ref", sa.Text),
    _column("merge_base", sa.Text),  # null: GitHub knows none
    _must("asked_at", Big),
    sa.PrimaryKeyConstraint("upstream_repo", "head_sha", "base_ref", name="pk_oot_merge_base"),
)

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
