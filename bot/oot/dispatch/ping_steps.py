"""The steps of a ping, and how each of them went."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.oot.allowlist import rows as allowlists
from bot.oot.allowlist.entry import Level
from bot.oot.dispatch.ping import path_of
from bot.oot.reports.store import pings
from bot.web.blocks import Block, BlockLine

if TYPE_CHECKING:
    from bot.db.transaction import Transaction
    from bot.ingest.rows import WorkflowRunRow
    from bot.oot.allowlist.allowlist import Entry
    from bot.oot.reports.tables import PingRow
    from bot.web.blocks import Tone
    from bot.web.subjects import BackendPageSubject

SHOWN = 5  # newest pings of a backend
SKEW = 5_000  # milliseconds that GitHub's clock may be behind
PATIENCE = 600_000  # milliseconds until a step that has not come is likely not to
TONES: dict[str, Tone] = {"ok": "good", "failed": "bad", "waiting": "wait"}
LISTEN = "does a workflow on the default branch have `repository_dispatch: types: [..., ping]`?"


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step of a ping."""

    name: str
    state: str  # ok | failed | waiting
    words: str
    at: int | None = None  # epoch milliseconds
    url: str | None = None

    @property
    def tone(self) -> Tone:
        """Its sign and colour."""
        return TONES[self.state]


async def read_steps(tx: Transaction, row: PingRow) -> list[Step]:
    """Return the steps of a ping in order."""
    allowlist = await allowlists.in_force(tx)
    entry = allowlist.find(row["backend"]) if allowlist else None
    run = None
    if row["sent_at"] is not None:
        event = f"{entry.dispatch if entry else 'repository'}_dispatch"
        run = await pings.first_run(tx, row["backend"], event, row["sent_at"] - SKEW)
    return describe_steps(row, entry, run, now=tx.now)


def describe_steps(row: PingRow, entry: Entry | None, run: WorkflowRunRow | None, *, now: int) -> list[Step]:
    """Return the steps: each is done, has failed, or has not come yet, with what to look at."""
    late = now - row["created_at"] > PATIENCE
    return [
        _allowlisted(entry),
        *_sent(row),
        _started(row, entry, run, late=late),
        *_reported(row, late=late),
    ]


def _allowlisted(entry: Entry | None) -> Step:
    if entry is None:
        return Step(
            name="allowlisted", state="failed", words="it is not on the allowlist: ask upstream to add it"
        )
    if entry.level < Level.L2:
        words = "at L1, where nothing is reported back: its report will be refused"
        return Step(name="allowlisted", state="failed", words=words)
    return Step(name="allowlisted", state="ok", words=f"at L{int(entry.level)}")


def _sent(row: PingRow) -> list[Step]:
    if row["state"] == "pending":
        return [
            Step(name="installed", state="waiting", words="GitHub is being asked"),
            Step(name="dispatch sent", state="waiting", words=""),
        ]
    if row["state"] == "not_installed":
        return [
            Step(name="installed", state="failed", words=row["error"] or "the App is not installed there"),
            Step(name="dispatch sent", state="failed", words="it could not be sent"),
        ]
    installed = Step(name="installed", state="ok", words="the App may dispatch to it")
    if row["state"] == "failed":
        return [
            installed,
            Step(name="dispatch sent", state="failed", words=row["error"] or "GitHub refused it"),
        ]
    return [installed, Step(name="dispatch sent", state="ok", words="GitHub took it", at=row["sent_at"])]


def _started(row: PingRow, entry: Entry | None, run: WorkflowRunRow | None, *, late: bool) -> Step:
    name = "run started"
    if row["run_id"] is not None:
        mine = run is not None and str(run["id"]) == row["run_id"]
        at, url = (run["created_at"], run["html_url"]) if run is not None and mine else (None, None)
        return Step(name=name, state="ok", words=f"run {row['run_id']}", at=at, url=url)
    if row["state"] != "sent":
        return Step(name=name, state="failed" if row["state"] != "pending" else "waiting", words="")
    if run is not None:
        words = f"run {run['id']} began after it, and has not reported"
        return Step(name=name, state="ok", words=words, at=run["created_at"], url=run["html_url"])
    hint = (
        LISTEN if entry is None or entry.dispatch == "repository" else "does the workflow accept the input?"
    )
    return Step(name=name, state="failed" if late else "waiting", words=f"none is known: {hint}")


def _reported(row: PingRow, *, late: bool) -> list[Step]:
    accepted = row["completed_at"] or row["started_at"]
    if accepted is not None:
        how = f"completed: {row['conclusion']}" if row["completed_at"] else "in progress; its end is awaited"
        done = row["completed_at"] is not None or not late
        return [
            Step(name="token verified", state="ok", words="it is the backend's own"),
            Step(
                name="report accepted",
                state="ok" if row["completed_at"] else "waiting" if done else "failed",
                words=how,
                at=accepted,
            ),
        ]
    if row["refusal"] is not None:
        verified = not row["refusal"].startswith("401 ")
        return [
            Step(
                name="token verified",
                state="ok" if verified else "failed",
                words="it is the backend's own" if verified else row["refusal"],
            ),
            Step(name="report accepted", state="failed", words=row["refusal"], at=row["refused_at"]),
        ]
    state = "failed" if late or row["state"] in {"failed", "not_installed"} else "waiting"
    words = "no report has come" if row["state"] == "sent" else ""
    return [
        Step(name="token verified", state=state, words=words),
        Step(name="report accepted", state=state, words=words),
    ]


def outcome_of(steps: list[Step]) -> tuple[str, str]:
    """Return the state of a whole ping, and the words that say where it stands."""
    failed = next((step for step in steps if step.state == "failed"), None)
    if failed is not None:
        return "failed", f"{failed.name}: {failed.words or 'no'}"
    waiting = next((step for step in steps if step.state == "waiting"), None)
    if waiting is not None:
        return "waiting", f"waiting: {waiting.name}"
    return "ok", "every step works"


async def show_backend(tx: Transaction, subject: BackendPageSubject) -> list[Block]:
    """Return the newest pings, for the page of their backend."""
    lines = []
    for row in await pings.newest(tx, subject.repo, limit=SHOWN):
        state, words = outcome_of(await read_steps(tx, row))
        text = f"{words} (asked for by {row['requested_by']})"
        lines.append(BlockLine(text=text, url=path_of(row), tone=TONES[state]))
    return [Block(heading="Pings", lines=tuple(lines), last=True)] if lines else []
