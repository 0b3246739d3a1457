"""Is a failure of a pull request known elsewhere? The same job on trusted commits, the same failure on other ones.

It explains a failure and makes nothing green. Where something is missing, nothing is said.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from bot.ci.collect import job_names
from bot.ci.collect.job_names import FAILED
from bot.ci.logs.store import baseline_rows, failure_rows
from bot.ci.logs.store.failure_rows import UNNAMED
from bot.ingest import watched

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.ci.logs.store.baseline_rows import Base, Head, Past
    from bot.ci.logs.store.failed_jobs import FailedJob
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.web.blocks import Tone

PULLS = 2  # other pull requests with the same failure, from which on it is hardly the change
JobKey = tuple[int, int]  # repository and id


class Word(NamedTuple):
    """What is known of a failure, with what shows it."""

    word: str
    why: str
    url: str
    tone: Tone

    @property
    def text(self) -> str:
        """Both in one line."""
        return f"{self.word}: {self.why}"


async def judge_failures(
    tx: Transaction, settings: Settings, head: Head, failed: Sequence[FailedJob]
) -> dict[JobKey, Word]:
    """Return what is known of the failures on a head; of those on trusted branches nothing has to be said."""
    judged = [one for one in failed if not one["trusted"] and one["rule"] is not None]
    if not judged:
        return {}
    ids = await watched.ids(tx, head.repo)
    at = max(one["at"] for one in judged)
    base = await baseline_rows.find_base(tx, settings, head, ids, at=at)
    pasts = await _pasts(tx, settings, head, base, judged)
    failures = {past.key for past in pasts if past.conclusion in FAILED}
    found = await baseline_rows.captures_of_jobs(tx, failures | {_key(one) for one in judged})
    words = {}
    for one in judged:
        same = [past for past in pasts if past.repo.lower() == one["repo"].lower() and past.job == _name(one)]
        word = _known(one, same, base, found) or await _elsewhere(tx, one) or _new(one, same, base)
        if word:
            words[_key(one)] = word
    return words


async def _pasts(
    tx: Transaction, settings: Settings, head: Head, base: Base, judged: Sequence[FailedJob]
) -> list[Past]:
    own = [one for one in judged if one["repository_id"] in base.ids]
    names = [job_names.parse_name(one["workflow_name"], one["name"] or "") for one in own]
    backends = {one["repo"].lower() for one in judged if one["repository_id"] not in base.ids}
    return [
        *await baseline_rows.jobs_of_upstream(
            tx, settings, base, {(name.workflow, name.job) for name in names}
        ),
        *await baseline_rows.jobs_of_backends(tx, head.repo, backends, base.shas),
    ]


def _known(
    one: FailedJob, same: Sequence[Past], base: Base, found: dict[JobKey, list[tuple[str, str]]]
) -> Word | None:
    """Return that the same job failed with all the captures of this one on a trusted commit."""
    mine = {capture for capture in found.get(_key(one), ()) if capture[0] == one["rule"]}
    for past in sorted(same, key=lambda past: (base.shas.index(past.sha), -past.key[1])):
        theirs = found.get(past.key, ())
        if past.conclusion in FAILED and mine and mine <= set(theirs):
            why = f"the same job failed with the same captures on {_where(base, past.sha)}"
            return Word("known", why, f"/{past.repo}/job/{past.key[1]}", "warn")
    return None


def _new(one: FailedJob, same: Sequence[Past], base: Base) -> Word | None:
    """Return that the same job, with all its shards, passed on a trusted commit, and failed on none of them."""
    if one["kind"] in UNNAMED or any(past.conclusion in FAILED for past in same):
        return None
    for sha in base.shas:
        there = [past for past in same if past.sha == sha]
        if there and all(past.conclusion == "success" for past in there):
            return Word(
                "new",
                f"the same job passes on {_where(base, sha)}",
                f"/{there[0].repo}/job/{there[0].key[1]}",
                "bad",
            )
    return None


async def _elsewhere(tx: Transaction, one: FailedJob) -> Word | None:
    """Return that other pull requests failed alike within a day, and no trusted branch ever."""
    if one["kind"] in UNNAMED or not one["signature"]:
        return None
    others, trusted = await failure_rows.count_alike(tx, one)
    if others < PULLS or trusted:
        return None
    where = f"on {others} other pull requests within a day, on no trusted branch"
    return Word(
        "likely flaky or infrastructure", f"the same failure {where}", f"/failures/{one['signature']}", "warn"
    )


def _where(base: Base, sha: str) -> str:
    return f"{'its base' if sha in base.merged_into else base.branch} at {sha[:12]}"


def _name(one: FailedJob) -> str:
    return job_names.parse_name(one["workflow_name"], one["name"] or "").shard_free


def _key(one: FailedJob) -> JobKey:
    return one["repository_id"], one["job_id"]
