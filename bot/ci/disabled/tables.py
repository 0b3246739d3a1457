"""Tables of what is disabled: issues as they were understood, the lists made of them, and what pulls close."""

from __future__ import annotations

import sqlalchemy as sa

from bot.db.columns import Big, Json, column, metadata, must, partial_index
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

ci_disabling = sa.Table(  # an open issue that names tests or a job, as it was understood
    "ci_disabling",
    metadata,
    must("repository_id", Big),
    must("number", Big),
    must("kind", sa.Text),  # test | job
    must("unstable", sa.Boolean),  # the job may fail; else it, or the tests, are skipped
    must("title", sa.Text),
    column("author", sa.Text),
    column("url", sa.Text),
    must("listed", sa.Boolean),  # whether it has an effect
    must("entries", Json),  # pairs of a name and the platforms, none: all
    must("problems", Json),  # what was not understood, or why it has no effect
    column("created_at", Big),
    column("updated_at", Big),
    sa.PrimaryKeyConstraint("repository_id", "number", name="pk_ci_disabling"),
)

ci_disabling_comment = sa.Table(  # our answer on such an issue
    "ci_disabling_comment",
    metadata,
    must("repository_id", Big),
    must("number", Big),
    column("comment_id", Big),  # null: intended, perhaps created
    must("digest", sa.Text),  # of what was written last
    must("writing_until", Big),  # see bot.oot.publish.create_once
    must("lost_until", Big),
    sa.PrimaryKeyConstraint("repository_id", "number", name="pk_ci_disabling_comment"),
)

ci_list = sa.Table(  # a list as it is sent
    "ci_list",
    metadata,
    must("repository_id", Big),
    must("name", sa.Text),
    must("etag", sa.Text),
    must("made_at", Big),
    must("body", sa.LargeBinary),  # last, with the next: SQLite reads a row up to the column it is asked for
    must("gzipped", sa.LargeBinary),  # empty where it is small
    sa.PrimaryKeyConstraint("repository_id", "name", name="pk_ci_list"),
)

ci_pull_closes = sa.Table(  # what the commits of a pull request close by their messages
    "ci_pull_closes",
    metadata,
    must("repository_id", Big),
    must("number", Big),
    must("head_sha", sa.Text),  # the head whose commits were read
    must("issues", Json),  # pairs of a repository, case folded, and a number
    sa.PrimaryKeyConstraint("repository_id", "number", name="pk_ci_pull_closes"),
)
