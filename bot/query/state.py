"""What are the heads of a pull request, and how does each stand? The newest one says most."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from bot.domain import verdict
from bot.domain.view import Answer
from bot.query import comparing
from bot.query.comparing import Comparison
from bot.query.explained import comparable, with_histories
from bot.query.facts import facts_of
from bot.query.head import Judge
from bot.store import allowlists, commands, dispatches, pulls

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from bot.query.head import Head
    from bot.settings import Settings
    from bot.store import Transaction

Row = dict[str, Any]
MOST_HEADS = 10  # newest heads whose failures are compared and whose check runs are kept true
MOST_TOLD = 5  # dispatches of a head to one backend that are looked at
ANSWERS = 3  # of the last commands that the comment shows


@dataclass(frozen=True, kw_only=True)
class PullState:
    """A pull request and all its heads we know, newest first."""

    repo: str
    number: int
    record: Row | None
    labels: frozenset[str]
    heads: tuple[Head, ...]
    compared: tuple[Row, ...] = ()  # what comparing failures has found out and nobody keeps yet

    @property
    def base_ref(self) -> str | None:
        """The branch it is meant for now."""
        return self.record["base_ref"] if self.record else None

    @property
    def current(self) -> Head | None:
        """The head people look at now."""
        return self.heads[0] if self.heads else None

    def head(self, sha: str) -> Head | None:
        """Return the head of that SHA."""
        return next((head for head in self.heads if head.view.head_sha == sha), None)


@dataclass(frozen=True, kw_only=True)
class _Told:
    """The dispatches of one head."""

    counting: Mapping[str, Row]  # whose verdicts count, by backend
    recent: Sequence[Row]  # these, and the last few to each backend
    base_ref: str | None = None  # the base branch of the last of all

    @classmethod
    def of(cls, record: Row | None, rows: Sequence[Row]) -> _Told:
        """Choose from all dispatches of a head, oldest first."""
        counting = verdict.newest([row for row in rows if _stands(record, row)])
        by_backend: defaultdict[str, list[Row]] = defaultdict(list)
        for row in rows:
            by_backend[row["backend_key"]].append(row)
        chosen = [*counting.values(), *(row for mine in by_backend.values() for row in mine[-MOST_TOLD:])]
        return cls(
            counting=counting,
            recent=list({row["id"]: row for row in chosen}.values()),
            base_ref=rows[-1]["base_ref"] if rows else None,
        )


NOTHING = _Told(counting={}, recent=())


async def pull_state(
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
    """Read and judge a pull request; an unknown one has no heads. `labels`: GitHub's word, where ours is in doubt.

    Judged are the `newest` heads (None: all) and `also` some more by their SHA; the others are but named, as there may
    be hundreds. Failed tests are read of the newest `compared` heads, whose failures are compared with others, and of
    the one that begins with `shown` ("" is the newest), for which see `explained`.
    """
    allowlist = await allowlists.in_force(tx)
    record = await pulls.get(tx, repo, number)
    if labels is None:
        labels = frozenset((record["labels"] or ()) if record else ())
    shas = _heads(record, await dispatches.heads_of_pull(tx, repo, number))
    looked_at = [sha for sha in shas if shown is not None and sha.startswith(shown)][:1]
    judged = {*shas[:newest], *also, *looked_at}
    rows = await dispatches.of_pull(tx, repo, number, heads=judged if newest is not None else None)
    told = {sha: _Told.of(record, [row for row in rows if row["head_sha"] == sha]) for sha in judged}
    facts = await facts_of(
        tx,
        [row for one in told.values() for row in one.recent],
        tests_of=[row["id"] for sha in {*shas[:compared], *looked_at} for row in told[sha].counting.values()],
    )
    ignored = await commands.ignored(tx, repo, number)
    judge = Judge(
        settings=settings,
        allowlist=allowlist,
        repo=repo,
        number=number,
        labels=labels,
        ignored={key: row for key, row in ignored.items() if _stands(record, row)},
        now=tx.now,
    )
    heads: list[Head] = []
    for sha in shas:
        mine = told.get(sha, NOTHING)
        chosen = {key: facts[row["id"]] for key, row in mine.counting.items()}
        expected = sha in told and sha == shas[0] and record is not None and record["state"] == "open"
        head = judge.head(sha, chosen, expecting=expected, base_ref=mine.base_ref)
        heads.append(replace(head, told=tuple(facts[row["id"]] for row in mine.recent), judged=sha in told))
    comparison = await _compare(tx, record, heads[:compared])
    heads = [with_histories(head, comparison.found) for head in heads]
    if heads:
        heads[0] = await _current(tx, heads)
    return PullState(
        repo=repo,
        number=number,
        record=record,
        labels=labels,
        heads=tuple(heads),
        compared=tuple(comparison.fresh),
    )


async def _compare(tx: Transaction, record: Row | None, heads: Sequence[Head]) -> Comparison:
    """Compare the failures of some heads with what happened elsewhere."""
    if record is None or not heads:
        return Comparison(found={}, fresh=())
    base_ref, shas = record["base_ref"], [head.view.head_sha for head in heads]
    merge_bases = await pulls.merge_bases(tx, heads[0].view.repo, shas, base_ref=base_ref or "")
    found = (comparable(one, base_ref, merge_bases.get(one.view.head_sha)) for one in heads)
    return await comparing.compare(tx, [wanted for several in found for wanted in several])


async def _current(tx: Transaction, heads: Sequence[Head]) -> Head:
    """Return the head people look at with what only the newest one says."""
    view = heads[0].view
    said = None
    if not view.reported:
        said = next((head.view for head in heads[1:] if head.view.reported), None)
    given = await commands.latest(tx, view.repo, view.number, limit=ANSWERS)
    answers = tuple(_answer(row) for row in given)
    return replace(heads[0], view=replace(view, previous=said, answers=answers))


def _answer(row: Row) -> Answer:
    refused = row["state"] == "refused"
    return Answer(
        login=row["login"],
        command=row["text"],
        text=row["answer"],
        refused=refused,
        awaited=refused or row["verb"] in {"help", "status"},
        at=row["created_at"],
    )


def _heads(record: Row | None, known: Sequence[str]) -> list[str]:
    """Return the heads newest first; the record knows which is current, whatever order deliveries came in."""
    shas: dict[str, None] = {}
    if record is not None and record["head_sha"]:
        shas[record["head_sha"]] = None
    shas |= dict.fromkeys(reversed(known))
    return list(shas)


def _stands(record: Row | None, row: Row) -> bool:
    """Whether what was found or said of a head still counts: of the present one only on its present base branch."""
    return record is None or row["head_sha"] != record["head_sha"] or row["base_ref"] == record["base_ref"]
