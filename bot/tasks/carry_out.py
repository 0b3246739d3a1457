"""What does each command do, and who may give it? Everything here happens in one transaction; tasks do the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bot import query, relay
from bot.domain import verdict, words
from bot.domain.authors import may_write
from bot.domain.commands import USAGE
from bot.store import commands, dispatches
from bot.tasks import rerun

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.domain.allowlist import Entry
    from bot.domain.commands import Command
    from bot.domain.view import Backend
    from bot.query import Head, PullState
    from bot.settings import Settings
    from bot.store import Transaction

Row = dict[str, Any]
AUTHORS_MAY = frozenset({"rerun", "cancel"})
ONLY_WRITERS = frozenset({"ignore"})


class Refused(Exception):
    """The command has no effect; the message says why, to whoever gave it."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Who asks, where, and what GitHub says they may do."""

    repo: str
    number: int
    login: str
    by_author: bool  # of the pull request
    role: str | None  # admin | write | read | none
    cause: str  # what this is the doing of, the same for the same command
    said_at: int  # epoch milliseconds, by GitHub's clock and in its whole seconds


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of a command."""

    done: bool
    answer: str
    head_sha: str | None


async def carry_out(tx: Transaction, settings: Settings, asked: Asked, command: Command) -> Outcome:
    """Do what a command asks for, if whoever asks may."""
    await dispatches.take_turns(tx, asked.repo, asked.number)
    state = await query.pull_state(tx, settings, asked.repo, asked.number, newest=1)
    head = state.current
    sha = head.view.head_sha if head else None
    try:
        return Outcome(done=True, answer=await _answer(tx, state, asked, command), head_sha=sha)
    except Refused as reason:
        return Outcome(done=False, answer=str(reason), head_sha=sha)


async def _answer(tx: Transaction, state: PullState, asked: Asked, command: Command) -> str:
    if command.problem:
        raise Refused(command.problem)
    if command.verb == "help":
        return USAGE
    head = state.current
    if head is None or state.record is None:
        raise Refused("nothing is known of this pull request yet: try again in a minute")
    chosen = [_find(head, name) for name in command.backends]
    if command.verb == "status":
        return _status(head, chosen)
    if state.record["state"] != "open":
        raise Refused("this pull request is closed")
    chosen = chosen or _meant(head, command.verb, asked)
    refused = [_label(head, key) for key in chosen if not _may(asked, command.verb, head.entries.get(key))]
    if refused:
        raise Refused(f"{asked.login} may not {command.verb} {words.listing(refused)}: {_who(command.verb)}")
    done, vain = [], []
    for key in chosen:
        try:
            done.append(await _do(tx, state, key, asked, command))
        except Refused as reason:
            vain.append(f"{reason}.")
    if not done:
        raise Refused(" ".join(vain))
    return " ".join([*done, *vain])


async def _do(tx: Transaction, state: PullState, key: str, asked: Asked, command: Command) -> str:
    head = state.heads[0]
    match command.verb:
        case "run":
            return await _run(tx, state, key, asked)
        case "rerun":
            return await _rerun(tx, head, key, asked, "all" if command.everything else "failed")
        case "cancel":
            return await _cancel(tx, head, key, asked)
        case "ignore":
            _refuse_if_changed(state, asked)
            return await _ignore(tx, state, key, asked, command.reason)
    raise ValueError(f"nobody carries out {command.verb}")


def _status(head: Head, chosen: Sequence[str]) -> str:
    shown = [one for one in head.view.backends if not chosen or one.repo.casefold() in chosen]
    if not chosen:
        return (
            f"{words.tally(shown) or 'no backend has been told'} on commit {words.short(head.view.head_sha)}"
        )
    if not shown:
        raise Refused(f"nothing is known of {_label(head, chosen[0])} on this commit")
    return "; ".join(f"{one.label}: {words.verdict(one)}" for one in shown)


async def _run(tx: Transaction, state: PullState, key: str, asked: Asked) -> str:
    """Dispatch a backend afresh, whatever became of it before."""
    head = state.heads[0]
    label, entry = _label(head, key), head.entries.get(key)
    if entry is None or not entry.wants("pull_request"):
        raise Refused(f"{label} does not take part in pull requests any more")
    like = head.facts.get(key) or next(iter(head.facts.values()), None)
    if like is None:
        raise Refused("no event of this commit was relayed: push again, or close and reopen")
    dispatch = like.dispatch | {"backend": entry.repo}
    await _heed_policy(tx, dispatch, label)
    await relay.afresh(tx, dispatch, asked.cause)
    return f"{label} is dispatched again."


async def _rerun(tx: Transaction, head: Head, key: str, asked: Asked, scope: str) -> str:
    facts, label = head.facts.get(key), _label(head, key)
    if facts is None:
        raise Refused(f"{label} was not told about this commit: /oot run {label}")
    await _heed_policy(tx, facts.dispatch, label)
    if not await rerun.ask(tx, facts, scope, cause=asked.cause):
        return f"{label} is about to run already."
    return f"{label} is run again."


async def _heed_policy(tx: Transaction, dispatch: Row, label: str) -> None:
    if await relay.is_held(tx, dispatch):
        raise Refused(f"{label} is held back: it needs the label {words.OK_TO_TEST}")


async def _cancel(tx: Transaction, head: Head, key: str, asked: Asked) -> str:
    facts, label = head.facts.get(key), _label(head, key)
    if facts is None:
        raise Refused(f"{label} was not told about this commit")
    if facts.dispatch["state"] == "held":
        raise Refused(f"{label} is held back: nothing of it runs")
    unsent, identifier = facts.dispatch["state"] == "pending", facts.dispatch["id"]
    reason = f"dropped by {asked.login} before it was sent"  # what has a reason is not taken up again
    # not sent meanwhile
    if unsent and await dispatches.settle(tx, identifier, state="superseded", error=reason):
        return f"{label} is not told about this commit."
    runs = {job.run_id for job in verdict.latest(facts.jobs) if not job.finished}
    ours = sorted(run for run in runs if run.isascii() and run.isdigit())
    if not ours:
        raise Refused(f"{label} has reported no run that GitHub could cancel")
    for run in ours:
        tx.enqueue("cancel", f"{facts.dispatch['id']}/{run}")
    return words.being_cancelled(label)


def _refuse_if_changed(state: PullState, asked: Asked) -> None:
    """Refuse what was said before the newest event of the pull request: its commit may be one nobody looked at.

    Any event counts, as its time is GitHub's own; which of two in one second was first is unknown.
    """
    record = state.record or {}
    if (record.get("updated_at") or asked.said_at) >= asked.said_at:
        sha = words.short(state.heads[0].view.head_sha)
        raise Refused(
            f"the pull request, now at {sha}, has changed since this was said: look, and say it again"
        )


async def _ignore(tx: Transaction, state: PullState, key: str, asked: Asked, reason: str) -> str:
    head = state.heads[0]
    row = {
        "upstream_repo": asked.repo,
        "pr_number": asked.number,
        "head_sha": head.view.head_sha,
        "base_ref": state.base_ref,
        "backend_key": key,
        "login": asked.login,
        "reason": reason,
    }
    await commands.ignore(tx, row)
    return f"{_label(head, key)} is ignored on commit {words.short(head.view.head_sha)}."


def _find(head: Head, name: str) -> str:
    """Return the backend people call by a name: its device or its owner/repo; raises Refused."""
    wanted = name.casefold()
    for key in (*head.entries, *head.facts):
        if wanted in {key, _label(head, key).casefold()}:
            return key
    known = sorted(_label(head, key) for key in {*head.entries, *head.facts})
    raise Refused(f"no backend is called {name}; there are: {words.listing(known, limit=20)}")


def _meant(head: Head, verb: str, asked: Asked) -> list[str]:
    """Return the backends meant by a command that names none: the red ones, or those that run; of the asker's."""
    fits = [one for one in head.view.backends if _fits(one, verb)]
    if not fits:
        raise Refused("nothing has failed here" if verb == "rerun" else "nothing runs here")
    keys = [one.repo.casefold() for one in fits if one.repo.casefold() in head.facts]
    return [key for key in keys if _may(asked, verb, head.entries.get(key))] or keys


def _fits(backend: Backend, verb: str) -> bool:
    return backend.state.red if verb == "rerun" else any(not job.finished for job in backend.jobs)


def _may(asked: Asked, verb: str, entry: Entry | None) -> bool:
    if may_write(asked.role):
        return True
    if verb in ONLY_WRITERS:
        return False
    on_call = entry is not None and asked.login.casefold() in {name.casefold() for name in entry.oncalls}
    return on_call or (asked.by_author and verb in AUTHORS_MAY)


def _who(verb: str) -> str:
    if verb in ONLY_WRITERS:
        return "that takes write access"
    author = ", or being the author" if verb in AUTHORS_MAY else ""
    return f"that takes write access, or being on call for it{author}"


def _label(head: Head, key: str) -> str:
    if key in head.entries:
        return head.entries[key].label
    dispatch = head.facts[key].dispatch
    return str(dispatch["device"] or dispatch["backend"])
