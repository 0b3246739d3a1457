"""Lines that say why jobs failed: in the comment, in check runs and in the list of a commit's failures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.core.escaping import clean
from bot.evidence.logs import failed_jobs, known_failures
from bot.evidence.logs.known_failures import UpstreamHead
from bot.ingest import repositories
from bot.jobs.job_cells import is_elsewhere
from bot.web.blocks import BlockLine, JobLine
from bot.web.failures import Failures, FailureStanding, JobKey, JobRemark, ReasonLine

if TYPE_CHECKING:
    from bot.db.transaction import Transaction
    from bot.evidence.logs.failed_jobs import FailedJob
    from bot.evidence.logs.known_failures import Judgement
    from bot.web.blocks import BackendsSubject
    from bot.web.failures import FailuresSubject

LINE_MOST = 300  # characters shown of a line
STEP_MOST = 80  # characters of a step's name
SHOWN = 30  # jobs of a backend
LISTED = 200  # jobs of upstream on a commit, and as many of backends
INFRA = "infra"  # the kind of failure that is the machine's


async def find_failures(tx: Transaction, subject: FailuresSubject) -> Failures:
    """Return why jobs of upstream and backends failed on a commit, and whether the failure is known elsewhere."""
    own = await failed_jobs.failures_on_commit(
        tx, await repositories.read_ids(tx, subject.repo) if subject.own else (), subject.sha, limit=LISTED
    )
    backends = await failed_jobs.failures_of_backends(tx, subject.repo, subject.sha, limit=LISTED)
    shown = [
        failure for failure in (*own, *backends) if failure["public"]
    ]  # what private jobs are called is private, too
    head = UpstreamHead(subject.repo, subject.sha)
    words = await known_failures.judge_failures(tx, subject.settings, head, shown)
    remarks = [
        _remark(
            failure,
            subject,
            words.get((failure["repository_id"], failure["job_id"])),
            alone=failure in backends,
        )
        for failure in shown
    ]
    return Failures(jobs=remarks, links=[_search_link(subject.repo, subject.sha)] if shown else ())


async def backend_lines(tx: Transaction, subject: BackendsSubject) -> dict[str, list[JobLine]]:
    """Return the lines that say why jobs of backends' runs failed, by backend in lower case."""
    failures = await failed_jobs.failures_by_backend(tx, subject.runs, limit=SHOWN)
    return {
        name: [
            _job_line(failure, subject.url)
            for failure in several
            if failure["rule"] is not None or not failure["public"]
        ]
        for name, several in failures.items()
    }


def log_page(repo: str, job_id: int) -> str:
    """Return the page of a job's log."""
    return f"{job_page(repo, job_id)}/log"


def job_page(repo: str, job_id: int) -> str:
    """Return the page of a job on GitHub or another CI, or of a log that a backend uploaded."""
    if job_id > 0:
        return f"/{repo}/job/{job_id}"
    return f"/{repo}/{'other-job' if is_elsewhere(job_id) else 'upload'}/{-job_id}"


def _search_link(repo: str, sha: str) -> BlockLine:
    return BlockLine(text="search the logs of this commit", url=f"/{repo}/commit/{sha}/logs")


def _remark(failed: FailedJob, subject: FailuresSubject, word: Judgement | None, *, alone: bool) -> JobRemark:
    number, known = failed["line_num"], failed["rule"] is not None
    line = ReasonLine(
        kind=failed["kind"] if known else "",
        text=shorten_line(failed["line"] or "") if known else "",
        place=place_in_log(number, failed["step"]) if known else "the log: no rule matches a line of it",
        url=line_url(log_page(failed["repo"], failed["job_id"]), number),
        page=job_page(failed["repo"], failed["job_id"]),
        infra=known and failed["kind"] == INFRA,
    )
    standing = FailureStanding(word=word.word, why=word.why, url=word.url, tone=word.tone) if word else None
    return JobRemark(job=_job_key(failed, subject), line=line, standing=standing, alone=alone)


def _job_key(failed: FailedJob, subject: FailuresSubject) -> JobKey:
    if is_elsewhere(failed["job_id"]) and (key := subject.upstream_jobs.get(failed["job_id"])):
        return key
    return JobKey(failed["repo"].lower(), failed["run_id"], failed["run_attempt"], failed["name"] or "")


def _job_line(failed: FailedJob, url: str) -> JobLine:
    key: Any = {
        "run_id": failed["run_id"],
        "run_attempt": failed["run_attempt"],
        "job": failed["name"] or "",
    }
    if not failed["public"]:
        return JobLine(**key, words="the log is private")
    number = failed["line_num"]
    return JobLine(
        **key,
        words=failed["kind"],
        code=shorten_line(failed["line"] or ""),
        place=place_in_log(number, failed["step"]),
        url=url + line_url(log_page(failed["repo"], failed["job_id"]), number),
    )


def _in_step(step: str | None) -> str:
    return f" · in {shorten_line(step)[:STEP_MOST]}" if step else ""


def place_in_log(line: int | None, step: str | None) -> str:
    """Say where a verdict was found: in a line and its step, or beside the job."""
    return f"line {line:,}{_in_step(step)}" if line else "noted by GitHub beside the job"


def line_url(page: str, line: int | None) -> str:
    """Return the address of a line of a log's page, or of the job's page."""
    return f"{page}?line={line}#L{line}" if line else page.removesuffix("/log")


def shorten_line(text: str) -> str:
    """Clean text from outside and cut it to the length that is shown of a line."""
    shown = clean(text)
    return shown if len(shown) <= LINE_MOST else shown[: LINE_MOST - 1] + "…"
