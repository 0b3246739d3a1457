"""Tables of logs: what is kept of them, verdicts, signatures of failures with their days, rulesets and their use."""

from __future__ import annotations

import sqlalchemy as sa

from bot.db.columns import Big, Json, column, metadata, must, partial_index

ci_log = sa.Table(
    "ci_log",
    metadata,
    must("repository_id", Big),
    must("job_id", Big),
    must("run_id", Big),
    must("run_attempt", sa.Integer),
    must("state", sa.Text),  # as that of ci_fetch
    must("bytes", Big),  # of the plain log as stored
    must("lines", Big),
    must("longest_line", Big),
    must("sha256", sa.Text),  # of the plain log as stored
    column("blob", sa.Text),
    column("first_at", Big),
    column("last_at", Big),
    must("fetched_at", Big),
    must("truncated", sa.Boolean),
    must("secrets_masked", sa.Integer),
    must("head_sha", sa.Text),
    must("trusted", sa.Boolean),
    column("first_error", Json),  # rule, kind, line, line_num
    sa.PrimaryKeyConstraint("repository_id", "job_id", name="pk_ci_log"),
    sa.Index("ix_ci_log_head_sha", "head_sha", "repository_id"),
    sa.Index("ix_ci_log_run", "repository_id", "run_id"),
    sa.Index("ix_ci_log_fetched_at", "fetched_at"),
)

ci_verdict = sa.Table(
    "ci_verdict",
    metadata,
    must("repository_id", Big),
    must("job_id", Big),
    must("ruleset", sa.Text),
    must("rank", sa.Integer),  # 0: the verdict; further ones behind it
    must("current", sa.Boolean),  # by the ruleset that classified the log last
    column("rule", sa.Text),  # None: no rule matches
    must("kind", sa.Text),
    column("line", sa.Text),
    column("line_num", Big),
    must("captures", Json),
    must("context", Json),
    column("step", sa.Text),
    must("excerpt", Json),
    column("excerpt_from", Big),
    column("hint", sa.Text),
    column("signature", sa.Text),
    must("family", sa.Text),  # public, or the one private repository whose failures are counted by themselves
    must("day", sa.Integer),  # days since 1970, on which the job completed
    must("trusted", sa.Boolean),
    column("change", sa.Text),  # what a run that is not trusted was about: a pull request, a branch
    must("at", Big),
    sa.PrimaryKeyConstraint("repository_id", "job_id", "ruleset", "rank", name="pk_ci_verdict"),
)
FIRST = sa.and_(ci_verdict.c.current, ci_verdict.c.rank == 0)
partial_index("ix_ci_verdict_signature", ci_verdict.c.signature, ci_verdict.c.day, where=FIRST)
partial_index("ix_ci_verdict_repository", ci_verdict.c.repository_id, ci_verdict.c.family, where=FIRST)
partial_index("ix_ci_verdict_day", ci_verdict.c.day, ci_verdict.c.kind, where=FIRST)
partial_index(
    "ix_ci_verdict_at", ci_verdict.c.repository_id, ci_verdict.c.at, ci_verdict.c.job_id, where=FIRST
)

ci_signature = sa.Table(
    "ci_signature",
    metadata,
    must("signature", sa.Text),
    must("family", sa.Text),
    must("first_at", Big),
    must("last_at", Big),
    must("title", sa.Text),
    must("rule", sa.Text),
    must("kind", sa.Text),
    must("jobs_total", Big),
    column("issue_url", sa.Text),
    sa.PrimaryKeyConstraint("signature", "family", name="pk_ci_signature"),
)

ci_signature_day = sa.Table(
    "ci_signature_day",
    metadata,
    must("signature", sa.Text),
    must("family", sa.Text),
    must("day", sa.Integer),
    must("jobs", Big),
    must("prs", Big),  # pull requests, or branches where these are not known
    must("trusted_jobs", Big),
    must("repos", Big),
    sa.PrimaryKeyConstraint("signature", "family", "day", name="pk_ci_signature_day"),
    sa.Index("ix_ci_signature_day_day", "day", "family"),
)

ci_ruleset = sa.Table(
    "ci_ruleset",
    metadata,
    sa.Column("digest", sa.Text, primary_key=True),  # of source and content
    must("source", sa.Text),
    must("content", sa.Text),
    must("valid", sa.Boolean),
    column("error", sa.Text),
    must("rules", sa.Integer),
    must("loaded_at", Big),  # when it was read last
    sa.Index("ix_ci_ruleset_source", "source", "loaded_at"),
)

ci_reclassified = sa.Table(  # how far a repository's stored logs were classified by the rules now in force
    "ci_reclassified",
    metadata,
    sa.Column("repository_id", Big, primary_key=True, autoincrement=False),
    must("ruleset", sa.Text),
    must("phase", sa.Integer),
    must("at", Big),
    must("job_id", Big),
)
