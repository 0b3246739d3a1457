"""Tables of logs: logs, verdicts, signatures of failures with their days, and rulesets.

The parser's answer is put together from the same rows.
"""

from __future__ import annotations

from typing import Any, TypedDict

import sqlalchemy as sa

from bot.db.rows import Big, Bool, Int, Json, Millis, Text, partial_index, table

PUBLIC = "public"  # the family of the failures of all public repositories


class LogKey(TypedDict):
    """The job that a log is of."""

    repository_id: Big
    job_id: Big  # below 0: of an upload, or a job of another CI, see bot.jobs.job_cells


class LogRun(TypedDict):
    """The attempt of a run that a job belongs to."""

    run_id: Big
    run_attempt: Int


class LogState(TypedDict):
    """How the collecting of a log ended."""

    state: Text  # as that of ci_fetch


class LogSize(TypedDict):
    """Measures of a log."""

    bytes: Big  # of the plain log as stored
    lines: Big
    longest_line: Big
    sha256: Text  # of the plain log as stored


class LogBlob(TypedDict):
    """Where a log is stored."""

    blob: Text | None


class LogTimes(TypedDict):
    """The times of the first and the last line."""

    first_at: Millis | None
    last_at: Millis | None


class LogFetched(TypedDict):
    """When a log was downloaded."""

    fetched_at: Millis


class LogChanges(TypedDict):
    """How a stored log differs from the one that was downloaded."""

    truncated: Bool  # some line was too long to be kept whole
    secrets_masked: Int


class LogHead(TypedDict):
    """The commit that a job ran on."""

    head_sha: Text
    trusted: Bool


class LogFirstError(TypedDict):
    """The earliest line of a log that a rule for builds matches."""

    first_error: Json[dict[str, Any]] | None  # rule, kind, line, line_num


class LogRow(
    LogKey, LogRun, LogState, LogSize, LogBlob, LogTimes, LogFetched, LogChanges, LogHead, LogFirstError
):
    """A log that is or was kept."""


ci_log = table(
    "ci_log",
    LogRow,
    sa.Index("ix_ci_log_head_sha", "head_sha", "repository_id"),
    sa.Index("ix_ci_log_run", "repository_id", "run_id"),
    sa.Index("ix_ci_log_fetched_at", "fetched_at"),
    key=("repository_id", "job_id"),
)


class VerdictRuleset(TypedDict):
    """The rules that made a verdict."""

    ruleset: Text


class VerdictRank(TypedDict):
    """The place of a verdict among those on its job."""

    rank: Int  # 0: the verdict; further ones behind it


class VerdictCurrent(TypedDict):
    """Whether a verdict counts."""

    current: Bool  # by the ruleset that classified the log last


class VerdictRule(TypedDict):
    """The rule that matches, with its kind and the line."""

    rule: Text | None  # None: no rule matches
    kind: Text
    line: Text | None
    line_num: Big | None


class VerdictMatch(TypedDict):
    """What a rule captured, and the commands above the line."""

    captures: Json[list[str]]
    context: Json[list[str]]


class VerdictStep(TypedDict):
    """The step that wrote the line."""

    step: Text | None


class VerdictExcerpt(TypedDict):
    """The lines around the one that a rule matches."""

    excerpt: Json[list[str]]
    excerpt_from: Big | None
    hint: Text | None


class VerdictSignature(TypedDict):
    """The name of a failure: two jobs that share it likely failed for the same reason."""

    signature: Text | None


class VerdictFamily(TypedDict):
    """The family of failures that a verdict is counted among."""

    family: Text  # public, or the one private repository whose failures are counted by themselves


class VerdictDay(TypedDict):
    """When the job completed."""

    day: Int  # days since 1970


class VerdictTrust(TypedDict):
    """What the run of a job was about."""

    trusted: Bool
    change: Text | None  # what a run that is not trusted was about: a pull request, a branch


class VerdictAt(TypedDict):
    """When the job completed."""

    at: Big


class FoundVerdict(
    VerdictRuleset, VerdictRank, VerdictRule, VerdictMatch, VerdictStep, VerdictExcerpt, VerdictSignature
):
    """What the parser found: the part of a verdict that rules decide."""


class JobOfVerdict(LogKey, VerdictFamily, VerdictDay, VerdictTrust, VerdictAt):
    """The part of a verdict that rules do not decide."""


class VerdictRow(
    LogKey, VerdictRuleset, VerdictRank, VerdictCurrent, VerdictRule, VerdictMatch, VerdictStep, VerdictExcerpt,
    VerdictSignature, VerdictFamily, VerdictDay, VerdictTrust, VerdictAt,
):  # fmt: skip
    """A verdict on a job; `rule` is None where none matches."""


ci_verdict = table("ci_verdict", VerdictRow, key=("repository_id", "job_id", "ruleset", "rank"))
FIRST = sa.and_(ci_verdict.c.current, ci_verdict.c.rank == 0)
partial_index("ix_ci_verdict_signature", ci_verdict.c.signature, ci_verdict.c.day, where=FIRST)
partial_index("ix_ci_verdict_repository", ci_verdict.c.repository_id, ci_verdict.c.family, where=FIRST)
partial_index("ix_ci_verdict_day", ci_verdict.c.day, ci_verdict.c.kind, where=FIRST)
partial_index(
    "ix_ci_verdict_at", ci_verdict.c.repository_id, ci_verdict.c.at, ci_verdict.c.job_id, where=FIRST
)


class SignatureKey(TypedDict):
    """A failure, counted among those of all public repositories or of one private one."""

    signature: Text
    family: Text


class SignatureTimes(TypedDict):
    """When a failure was seen first and last."""

    first_at: Millis
    last_at: Millis


class SignatureTitle(TypedDict):
    """What a failure is called."""

    title: Text
    rule: Text
    kind: Text


class SignatureTotal(TypedDict):
    """What a failure cost in all, and the issue about it."""

    jobs_total: Big
    issue_url: Text | None


class SignatureRow(SignatureKey, SignatureTimes, SignatureTitle, SignatureTotal):
    """A failure that several jobs likely share."""


ci_signature = table("ci_signature", SignatureRow, key=("signature", "family"))


class SignatureDay(TypedDict):
    """A day, in days since 1970."""

    day: Int


class SignatureCost(TypedDict):
    """What a failure cost in a span of time."""

    jobs: Big
    prs: Big  # pull requests, or branches where these are not known
    trusted_jobs: Big
    repos: Big


class DayRow(SignatureDay, SignatureCost):
    """What a signature cost on a day."""


class SignatureDayRow(SignatureKey, SignatureDay, SignatureCost):
    """What a signature cost on a day, with its name."""


ci_signature_day = table(
    "ci_signature_day",
    SignatureDayRow,
    sa.Index("ix_ci_signature_day_day", "day", "family"),
    key=("signature", "family", "day"),
)


class RulesetRow(TypedDict):
    """One version of a source of rules."""

    digest: Text  # of source and content
    source: Text
    content: Text
    valid: Bool
    error: Text | None
    rules: Int
    loaded_at: Millis  # when it was read last


ci_ruleset = table(
    "ci_ruleset",
    RulesetRow,
    sa.Index("ix_ci_ruleset_source", "source", "loaded_at"),
    key=("digest",),
)


class Progress(TypedDict):
    """How far the logs of a repository have been classified by a ruleset: newest first, in two passes."""

    repository_id: Big
    ruleset: Text  # digest of all rules for the repository
    phase: Int
    at: Big  # of the verdict that was looked at last, and its job
    job_id: Big


ci_reclassified = table("ci_reclassified", Progress, key=("repository_id",))
ci_reclassified.c.repository_id.autoincrement = False  # it is GitHub's id


class LineVerdict(VerdictRank, VerdictRule, VerdictMatch, VerdictExcerpt):
    """A line that says why a job failed, as the rules find it."""


class ParsedVerdict(FoundVerdict):
    """A verdict as it is stored, with the title of its signature."""

    title: str | None


class LogFindings(TypedDict):
    """What the rules found in a log."""

    verdicts: list[ParsedVerdict]  # empty where the log was not classified
    first_error: dict[str, Any] | None


class ParsedLog(LogSize, LogTimes, LogChanges, LogFindings):
    """A log as it was stored, and what the rules found in it."""
