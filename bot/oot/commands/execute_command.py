"""Commands: what each one does and who may give it. All this happens in one transaction; tasks do the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.core import text
from bot.oot.commands import backend_runs
from bot.oot.dispatch.redispatch import is_held, may_write, redispatch
from bot.oot.results import dispatches
from bot.oot.verdict import pull_state, view
from bot.oot.verdict.verdict import is_finished, is_red

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.oot.allowlist.entry import Entry
    from bot.oot.commands.syntax import Command
    from bot.oot.results.tables import DispatchRow
    from bot.oot.verdict.pull_state import PullHead, PullState
    from bot.oot.verdict.verdict import Facts
    from bot.oot.verdict.view import Backend

FOR_AUTHORS = frozenset({"rerun", "cancel"})
FOR_WRITERS_ONLY = frozenset({"ignore"})


class CommandRefused(Exception):
    """The command has no effect; the message is the answer that says why."""


@dataclass(frozen=True, kw_only=True)
class CommandRequest:
    """Who gave a command and where, and what GitHub says they may do."""

    repo: str
    number: int
    login: str
    by_author: bool  # of the pull request
    commented_at: int  # epoch milliseconds, by GitHub's clock and in its whole seconds
    role: str | None = None  # admin | write | read | none; None: not asked
    cause: str = ""  # identifies the command


@dataclass(frozen=True, kw_only=True)
class CommandOutcome:
    """The result of a command."""

    done: bool
    answer: str
    head_sha: str | None


async def execute_command(
    tx: Transaction, settings: Settings, request: CommandRequest, command: Command, *, usage: str
) -> CommandOutcome:
    """Carry a command out, if the person may give it; `usage` says how every command is written."""
    await dispatches.lock_pull(tx, request.repo, request.number)
    state = await pull_state.read_pull(tx, settings, request.repo, request.number, newest=1)
    head = state.current
    sha = head.view.head_sha if head else None
    try:
        answer = usage if command.verb == "help" and not command.problem else None
        answer = answer or await _answer_command(tx, state, request, command)
        return CommandOutcome(done=True, answer=answer, head_sha=sha)
    except CommandRefused as reason:
        return CommandOutcome(done=False, answer=str(reason), head_sha=sha)


async def _answer_command(
    tx: Transaction, state: PullState, request: CommandRequest, command: Command
) -> str:
    if command.problem or command.verb == "ping":
        raise CommandRefused(command.problem or "a ping is given in an issue of the backend's own repository")
    head = state.current
    if head is None or state.record is None:
        raise CommandRefused("nothing is known of this pull request yet: try again in a minute")
    chosen = [_find_backend(head, name) for name in command.backends]
    if command.verb == "status":
        return _answer_status(head, chosen)
    if state.record["state"] != "open":
        raise CommandRefused("this pull request is closed")
    chosen = chosen or _implied(head, command.verb, request)
    forbidden = [
        _label(head, key) for key in chosen if not _may_give(request, command.verb, head.entries.get(key))
    ]
    if forbidden:
        raise CommandRefused(
            f"{request.login} may not {command.verb} {text.listing(forbidden)}: {_requirement(command.verb)}"
        )
    done, refused = [], []
    for key in chosen:
        try:
            done.append(await _carry_out(tx, state, key, request, command))
        except CommandRefused as reason:
            refused.append(f"{reason}.")
    if not done:
        raise CommandRefused(" ".join(refused))
    return " ".join([*done, *refused])


async def _carry_out(
    tx: Transaction, state: PullState, key: str, request: CommandRequest, command: Command
) -> str:
    head = state.heads[0]
    match command.verb:
        case "run":
            return await _dispatch_again(tx, state, key, request)
        case "rerun":
            return await _request_reruns(tx, head, key, request, "all" if command.everything else "failed")
        case "cancel":
            return await _request_cancels(tx, head, key, request)
        case "ignore":
            _refuse_if_changed(state, request)
            return await _ignore_backend(tx, state, key, request, command.reason)
    raise ValueError(f"unknown command {command.verb}")


def _answer_status(head: PullHead, chosen: Sequence[str]) -> str:
    shown = [backend for backend in head.view.backends if not chosen or backend.repo.casefold() in chosen]
    if not chosen:
        return f"{view.tally_states(shown) or 'nothing was dispatched'} on commit {text.short(head.view.head_sha)}"
    if not shown:
        raise CommandRefused(f"nothing is known of {_label(head, chosen[0])} on this commit")
    return "; ".join(f"{backend.label}: {view.headline(backend)}" for backend in shown)


async def _dispatch_again(tx: Transaction, state: PullState, key: str, request: CommandRequest) -> str:
    """Dispatch to a backend again, whatever the earlier outcome."""
    head = state.heads[0]
    label, entry = _label(head, key), head.entries.get(key)
    if entry is None or not entry.wants("pull_request"):
        raise CommandRefused(f"{label} does not take part in pull requests any more")
    like = head.facts.get(key) or next(iter(head.facts.values()), None)
    if like is None:
        raise CommandRefused("no event of this commit was dispatched: push again, or close and reopen")
    dispatch: DispatchRow = like.dispatch | {"backend": entry.repo}
    await _refuse_if_held(tx, dispatch, label)
    if dispatch["state"] == "waiting":
        raise CommandRefused(f"{label} waits for a machine already")
    await redispatch(tx, dispatch, request.cause)
    return f"{label} is dispatched again."


async def _request_reruns(
    tx: Transaction, head: PullHead, key: str, request: CommandRequest, scope: str
) -> str:
    facts, label = head.facts.get(key), _label(head, key)
    if facts is None:
        raise CommandRefused(f"this commit was not dispatched to {label}: /oot run {label}")
    await _refuse_if_held(tx, facts.dispatch, label)
    running = any(not is_finished(row) for row in facts.latest)
    if running and not any(map(is_red, facts.latest)):
        raise CommandRefused(
            f"nothing of {label} has failed, and it still runs: /oot cancel {label} stops it"
        )
    if not await backend_runs.request_rerun(tx, facts, scope, cause=request.cause):
        return f"{label} is about to run already."
    return f"{label} is run again as soon as its run has ended." if running else f"{label} is run again."


async def _refuse_if_held(tx: Transaction, dispatch: DispatchRow, label: str) -> None:
    if await is_held(tx, dispatch):
        raise CommandRefused(f"{label} is held back: it needs the label {view.OK_TO_TEST}")


async def _request_cancels(tx: Transaction, head: PullHead, key: str, request: CommandRequest) -> str:
    facts, label = head.facts.get(key), _label(head, key)
    if facts is None:
        raise CommandRefused(f"this commit was not dispatched to {label}")
    if facts.dispatch["state"] == "held":
        raise CommandRefused(f"{label} is held back: nothing of it runs")
    unsent, identifier = facts.dispatch["state"] in {"pending", "waiting"}, facts.dispatch["id"]
    # with a reason it is not dispatched again later
    reason = f"dropped by {request.login} before it was sent"
    # settled only if it was not sent meanwhile
    if unsent and await dispatches.settle_dispatch(tx, identifier, state="superseded", error=reason):
        return f"{label} is not run on this commit."
    runs = {row["run_id"] for row in facts.latest if not is_finished(row)} | _unreported_runs(facts)
    ours = sorted(run for run in runs if run.isascii() and run.isdigit())
    if not ours:
        raise CommandRefused(f"{label} has reported no run that GitHub could cancel")
    for run in ours:
        tx.enqueue("cancel", f"{facts.dispatch['id']}/{run}")
    return view.being_cancelled(label)


def _unreported_runs(facts: Facts) -> set[str]:
    """Return the run that GitHub started for a dispatch, and that has not reported yet."""
    run, state = facts.dispatch["run_id"], facts.dispatch["state"]
    return {run} if run and state == "sent" and not facts.jobs else set()


def _refuse_if_changed(state: PullState, request: CommandRequest) -> None:
    """Refuse a command older than the newest event of the pull request: its author may not have seen the commit.

    Any event counts, as its time is GitHub's own; which of two within one second was first is unknown.
    """
    changed_at = state.record["updated_at"] if state.record else None
    if changed_at is None or changed_at >= request.commented_at:
        sha = text.short(state.heads[0].view.head_sha)
        raise CommandRefused(
            f"the pull request, now at {sha}, has changed since this command was given: "
            "check it, and give the command again"
        )


async def _ignore_backend(
    tx: Transaction, state: PullState, key: str, request: CommandRequest, reason: str
) -> str:
    head = state.heads[0]
    row = {
        "upstream_repo": request.repo,
        "pr_number": request.number,
        "head_sha": head.view.head_sha,
        "base_ref": state.base_ref,
        "backend_key": key,
        "login": request.login,
        "reason": reason,
    }
    await dispatches.ignore_backend(tx, row)
    return f"{_label(head, key)} is ignored on commit {text.short(head.view.head_sha)}."


def _find_backend(head: PullHead, name: str) -> str:
    """Return the backend (case folded) of that name: its device or its owner/repo; raises Refused."""
    wanted = name.casefold()
    for key in (*head.entries, *head.facts):
        if wanted in {key, _label(head, key).casefold()}:
            return key
    known = sorted(_label(head, key) for key in {*head.entries, *head.facts})
    raise CommandRefused(f"no backend is called {name}; there are: {text.listing(known, limit=20)}")


def _implied(head: PullHead, verb: str, request: CommandRequest) -> list[str]:
    """Return the backends of a command that names none: those it applies to, or only the person's own, if any."""
    fits = [
        backend
        for backend in head.view.backends
        if _fits(backend, head.facts.get(backend.repo.casefold()), verb)
    ]
    if not fits:
        raise CommandRefused("nothing has failed here" if verb == "rerun" else "nothing runs here")
    keys = [backend.repo.casefold() for backend in fits if backend.repo.casefold() in head.facts]
    return [key for key in keys if _may_give(request, verb, head.entries.get(key))] or keys


def _fits(backend: Backend, facts: Facts | None, verb: str) -> bool:
    if verb == "rerun":
        return backend.state.red
    return any(not job.finished for job in backend.jobs) or bool(facts and _unreported_runs(facts))


def _may_give(request: CommandRequest, verb: str, entry: Entry | None) -> bool:
    if may_write(request.role):
        return True
    if verb in FOR_WRITERS_ONLY:
        return False
    on_call = entry is not None and request.login.casefold() in {name.casefold() for name in entry.oncalls}
    return on_call or (request.by_author and verb in FOR_AUTHORS)


def _requirement(verb: str) -> str:
    if verb in FOR_WRITERS_ONLY:
        return "that takes write access"
    author = ", or being the author" if verb in FOR_AUTHORS else ""
    return f"that takes write access, or being on call for it{author}"


def _label(head: PullHead, key: str) -> str:
    if key in head.entries:
        return head.entries[key].label
    dispatch = head.facts[key].dispatch
    return str(dispatch["device"] or dispatch["backend"])
