"""State of a pull request: its heads, newest first, each judged; the newest one has the most detail."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bot.ingest import record_reads
from bot.oot.allowlist import rows as allowlists
from bot.oot.results.store import commands, dispatches
from bot.oot.verdict import comparing, facts
from bot.oot.verdict.comparing import Comparison
from bot.oot.verdict.head import Judge
from bot.oot.verdict.view import Answer

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.ingest.rows import PullRow
    from bot.oot.results.tables import CommandRow, DispatchRow, IgnoreRow
    from bot.oot.verdict.head import Head
    from bot.oot.verdict.tables import ComparedRow

MOST_HEADS = 10  # newest heads whose failures are compared and whose check runs are maintained
MOST_RECENT = 5  # dispatches of a head to one backend that are read
ANSWERS = 3  # to the last commands, shown in the comment


@dataclass(frozen=True, kw_only=True)
class PullState:
    """A pull request and all its known heads, newest first."""

    repo: str
    number: int
    record: PullRow | None
    labels: frozenset[str]
    heads: tuple[Head, ...]
    compared: tuple[ComparedRow, ...] = ()  # results of comparing failures that are not stored yet

    @property
    def base_ref(self) -> str | None:
        """The branch it is to be merged into now."""
        return self.record["base_ref"] if self.record else None

    @property
    def current(self) -> Head | None:
        """The newest head."""
        return self.heads[0] if self.heads else None

    def head(self, sha: str) -> Head | None:
        """Return the head of that SHA."""
        return next((head for head in self.heads if head.view.head_sha == sha), None)


@dataclass(frozen=True, kw_only=True)
class _Dispatches:
    """The dispatches of one head."""

    counting: Mapping[str, DispatchRow]  # whose verdicts count, by backend
    pushed: Sequence[DispatchRow]  # of pushes that are about the pull request, which count beside them
    recent: Sequence[DispatchRow]  # these, and the last few to each backend
    base_ref: str | None = None  # the base branch of the last of all

    @classmethod
    def of(cls, record: PullRow | None, dispatched: Sequence[DispatchRow]) -> _Dispatches:
        """Choose from all dispatches of a head, oldest first."""
        valid = [row for row in dispatched if _is_valid(record, row)]
        counting = facts.newest(facts.of_own_events(valid))
        pushed = facts.answered_pushes(valid)
        by_backend: defaultdict[str, list[DispatchRow]] = defaultdict(list)
        for row in dispatched:
            by_backend[row["backend_key"]].append(row)
        recent = [row for of_backend in by_backend.values() for row in of_backend[-MOST_RECENT:]]
        return cls(
            counting=counting,
            pushed=pushed,
            recent=list({row["id"]: row for row in (*counting.values(), *pushed, *recent)}.values()),
            base_ref=dispatched[-1]["base_ref"] if dispatched else None,
        )

    @property
    def deciding(self) -> list[DispatchRow]:
        """All whose reports count."""
        return [*self.counting.values(), *self.pushed]


NO_DISPATCHES = _Dispatches(counting={}, pushed=(), recent=())


async def read_pull(
    tx: Transaction,
    settings: Settings,
    repo: str,
    number: int,
    *,
    labels: frozenset[str] | None = None,
    newest: int | None = None,
    also: Collection[str] = (),
    compared: int = 0,
    shown: str | None = None,
) -> PullState:
    """Read and judge a pull request; an unknown one has no heads. `labels`: as GitHub shows them, if it was asked.

    Judged are the `newest` heads (None: all) and those `also` given by SHA; of the others, perhaps hundreds, only the
    SHA is known. Failed tests are read of the newest `compared` heads, whose failures are compared with others, and of
    the one whose SHA begins with `shown` ("" is the newest), whose failures `comparing.explain` compares.
    """
    record = await record_reads.get(tx, repo, number)
    shas = _newest_first(record, await dispatches.heads_of_pull(tx, repo, number))
    in_full = [sha for sha in shas if shown is not None and sha.startswith(shown)][:1]
    judge = await _judge(tx, settings, repo, number, record=record, labels=labels)
    judged = None if newest is None else {*shas[:newest], *also, *in_full}
    heads = await _judge_heads(
        tx, judge, record, shas, judged=judged, with_tests={*shas[:compared], *in_full}
    )
    heads[:compared] = await comparing.with_bases(
        tx, heads[:compared], base_ref=record["base_ref"] if record else None
    )
    comparison = await _compare(tx, record, heads[:compared])
    heads = [comparing.with_histories(head, comparison.found) for head in heads]
    if heads:
        heads[0] = await _current(tx, heads)
    return PullState(
        repo=repo,
        number=number,
        record=record,
        labels=judge.labels,
        heads=tuple(heads),
        compared=tuple(comparison.fresh),
    )


async def _judge(
    tx: Transaction,
    settings: Settings,
    repo: str,
    number: int,
    *,
    record: PullRow | None,
    labels: frozenset[str] | None,
) -> Judge:
    if labels is None:
        labels = frozenset((record["labels"] or ()) if record else ())
    ignored = await commands.ignored(tx, repo, number)
    return Judge(
        settings=settings,
        allowlist=await allowlists.in_force(tx),
        repo=repo,
        number=number,
        labels=labels,
        ignored={key: row for key, row in ignored.items() if _is_valid(record, row)},
        now=tx.now,
    )


async def _judge_heads(
    tx: Transaction,
    judge: Judge,
    record: PullRow | None,
    shas: Sequence[str],
    *,
    judged: Collection[str] | None,
    with_tests: Collection[str],
) -> list[Head]:
    """Return all heads, judged those in `judged` (None: all), and with failed tests those in `with_tests`."""
    rows_of: defaultdict[str | None, list[DispatchRow]] = defaultdict(list)
    for row in await dispatches.read_for_pull(tx, judge.repo, judge.number, heads=judged):
        rows_of[row["head_sha"]].append(row)
    chosen = {sha: _Dispatches.of(record, rows_of[sha]) for sha in (shas if judged is None else judged)}
    known = await facts.read_facts(
        tx,
        [row for one in chosen.values() for row in one.recent],
        tests_of=[row["id"] for sha in with_tests for row in chosen[sha].deciding],
    )
    is_open = record is not None and record["state"] == "open"
    heads: list[Head] = []
    for sha in shas:
        of_head = chosen.get(sha, NO_DISPATCHES)
        counting = facts.merge_facts(known, of_head.counting, of_head.pushed)
        expecting = sha in chosen and is_open and sha == shas[0]
        head = judge.head(sha, counting, expecting=expecting, base_ref=of_head.base_ref)
        recent = tuple(known[row["id"]] for row in of_head.recent)
        heads.append(replace(head, recent=recent, judged=sha in chosen))
    return heads


async def _compare(tx: Transaction, record: PullRow | None, heads: Sequence[Head]) -> Comparison:
    """Compare the failures of some heads with the same jobs elsewhere."""
    if record is None or not heads:
        return Comparison(found={}, fresh=())
    found = (comparing.comparable(one, record["base_ref"]) for one in heads)
    return await comparing.compare(tx, [one for several in found for one in several])


async def _current(tx: Transaction, heads: Sequence[Head]) -> Head:
    """Return the newest head with what only it shows: the previous verdict and the answers to commands."""
    view = heads[0].view
    previous = None
    if not view.reported:
        previous = next((head.view for head in heads[1:] if head.view.reported), None)
    last = await commands.latest(tx, view.repo, view.number, limit=ANSWERS)
    answers = tuple(_answer(row) for row in last)
    return replace(heads[0], view=replace(view, previous=previous, answers=answers))


def _answer(row: CommandRow) -> Answer:
    refused = row["state"] == "refused"
    return Answer(
        login=row["login"],
        command=row["text"],
        text=row["answer"],
        refused=refused,
        awaited=refused or row["verb"] in {"help", "status", "bisect"},
        at=row["created_at"],
    )


def _newest_first(record: PullRow | None, known: Sequence[str]) -> list[str]:
    """Return the heads newest first; the record tells which is current, in whatever order deliveries came."""
    shas: dict[str, None] = {}
    if record is not None and record["head_sha"]:
        shas[record["head_sha"]] = None
    shas |= dict.fromkeys(reversed(known))
    return list(shas)


def _is_valid(record: PullRow | None, row: DispatchRow | IgnoreRow) -> bool:
    """Whether a dispatch or an ignore still counts: on the current head only for its current base branch."""
    return record is None or row["head_sha"] != record["head_sha"] or row["base_ref"] == record["base_ref"]
