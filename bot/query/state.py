"""What are the heads of a pull request, and how does each stand? The newest one says most."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from bot.domain import verdict
from bot.domain.view import Answer
from bot.query import comparing
from bot.query.explained import comparable, with_histories
from bot.query.facts import facts_of
from bot.query.head import Judge
from bot.store import allowlists, commands, dispatches, pulls

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from bot.query.head import Head
    from bot.settings import Settings
    from bot.store import Transaction

Row = dict[str, Any]
MOST_HEADS = 10  # newest heads whose failures are compared and whose check runs are kept true
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
    facts = await facts_of(tx, rows, tests_on={*shas[:compared], *looked_at})
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
        chosen = {key: facts[row["id"]] for key, row in verdict.newest(_counting(record, rows, sha)).items()}
        expected = sha in judged and sha == shas[0] and record is not None and record["state"] == "open"
        head = judge.head(sha, chosen, expecting=expected)
        told = tuple(facts[row["id"]] for row in _on(rows, sha))
        heads.append(replace(head, told=told, judged=sha in judged))
    base_ref = record["base_ref"] if record else None
    merge_bases = await pulls.merge_bases(tx, repo, shas[:compared])
    wanted = [
        one
        for head in heads[:compared]
        for one in comparable(head, base_ref, merge_bases.get(head.view.head_sha))
    ]
    comparison = await comparing.compare(tx, wanted)
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


def _counting(record: Row | None, rows: Sequence[Row], sha: str) -> list[Row]:
    """Return the dispatches of a head whose verdicts count."""
    return [row for row in _on(rows, sha) if _stands(record, row)]


def _stands(record: Row | None, row: Row) -> bool:
    """Whether what was found or said of a head still counts: of the present one only on its present base branch."""
    return record is None or row["head_sha"] != record["head_sha"] or row["base_ref"] == record["base_ref"]


def _on(rows: Sequence[Row], sha: str) -> list[Row]:
    return [row for row in rows if row["head_sha"] == sha]
