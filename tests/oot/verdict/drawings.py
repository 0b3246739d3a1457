"""A verdict drawn in one line of text: what is known about a backend on a head, and what follows from it.

    L4 sent | build:success github:success -> success, gate passed

Before the bar: the level it was dispatched at (`L3>L4`: listed at another now), the state of its dispatch, and how it is
listed. After it, the facts in the order they arrived in:

    build:success           a job of run 1 ended so; `running` has not ended, `silent` ended without saying how
    build.2:failure         its second attempt
    2/build:success         a job of run 2
    build:success!static    a report with little proof: with a static key, or without a callback token
    rerun.2:asked           a second attempt was asked for; or it is `sent`, `begun`, `impossible`, `never_started`
    github:success          GitHub says that the run completed so; `running`; or asking found it `missing`, ...
    2/announced:running     GitHub has announced a run of the same event that has not reported; it may have ended, too
    github:success/push     a push started it, according to GitHub; `/none`: GitHub does not say what did
"""

import re
from dataclasses import dataclass

from bot.oot.allowlist.allowlist import Allowlist
from bot.oot.allowlist.entry import Entry
from bot.oot.results.tables import DispatchRow, IgnoreRow, JobRow, RerunRow, RunStatusRow
from bot.oot.verdict import gate
from bot.oot.verdict.pull_state import HeadJudge
from bot.oot.verdict.verdict import QUIET, Facts, state_of
from tests.harness import START

REPO, UPSTREAM, HEAD = "org/npu", "octo/core", "a" * 40
FACT = re.compile(
    r"(?:(?P<run>\d)/)?(?P<what>\w+)(?:\.(?P<attempt>\d))?:(?P<how>\w+)(?:/(?P<event>\w+))?(?:!(?P<flag>\w+))?"
)
FLAGS = {"static": "static_key", "no_token": "no_callback_token"}
ASKED = frozenset({"missing", "unconfirmed", "unreadable"})
LISTED = {  # words about its entry in the allowlist
    "may_rest": {"answers": "some"},
    "unconfirmed": {"confirm": False},
    "static_allowed": {"static_key": "allowed"},
    "token_optional": {"callback_token": "optional"},
    "pushes_only": {"events": frozenset({"push"})},
}


class Site:
    """The settings that judging reads."""

    url = "https://hud.example"
    label_prefixes = ("ciflow/oot/",)


@dataclass(frozen=True)
class Drawing:
    """What is left of the arrow."""

    dispatched: int
    listed: int
    dispatch: str
    words: frozenset[str]
    facts: tuple[str, ...]

    @property
    def entry(self) -> Entry | None:
        """The backend in the allowlist."""
        if "unlisted" in self.words:
            return None
        terms = {name: value for word in self.words & set(LISTED) for name, value in LISTED[word].items()}
        return Entry(repo=REPO, level=self.listed, line=1, device="npu", **terms)

    @property
    def now(self) -> int:
        """When it is judged: `quiet`, a minute after the last news."""
        return START + QUIET - ("quiet" not in self.words)


def draw(text: str) -> Drawing:
    """Return what a line says."""
    about, _, facts = text.partition("|")
    levels, dispatch, *words = about.split()
    first, _, now = levels.removeprefix("L").partition(">L")
    assert set(words) <= {*LISTED, "unlisted", "quiet", "ignored", "no_allowlist"}, words
    return Drawing(int(first), int(now or first), dispatch, frozenset(words), tuple(facts.split()))


def facts_of(drawing: Drawing) -> Facts:
    """Return the rows that a store would have read."""
    jobs, reruns, statuses, announced = [], [], {}, []
    for at, fact in enumerate(drawing.facts):
        match = FACT.fullmatch(fact)
        assert match, fact
        run, attempt = match["run"] or "1", int(match["attempt"] or 1)
        if match["what"] == "github":
            statuses[run, attempt] = run_status(run, attempt, match["how"], match["event"])
        elif match["what"] == "announced":
            announced.append(run_status(run, attempt, match["how"], match["event"]))
        elif match["what"] == "rerun":
            reruns.append(row(RerunRow, run_id=run, from_attempt=attempt - 1, state=match["how"]))
        else:
            jobs.append(job(run, attempt, match["what"], match["how"], match["flag"], received_at=START + at))
    dispatch = row(
        DispatchRow,
        id="d1",
        backend=REPO,
        backend_key=REPO,
        level=drawing.dispatched,
        state=drawing.dispatch,
        base_ref="main",
        device="npu",
        error="GitHub refused it" if drawing.dispatch == "failed" else None,
    )
    return Facts(dispatch=dispatch, jobs=jobs, reruns=reruns, run_statuses=statuses, announced=announced)


def row(of_type, **values):
    """Return a row whose other columns are empty."""
    return dict.fromkeys(of_type.__annotations__) | values


def job(run, attempt, name, how, flag, *, received_at):
    """Return the row of a job; the last news of all of them is of the same time, whatever their order."""
    flags = {FLAGS[flag]: True} if flag else {}
    if how == "silent":
        how, flags = "neutral", flags | {"no_conclusion": True}
    ended = how != "running"
    return row(
        JobRow,
        job_key=f"{run}/{name}/{attempt}",
        workflow_name="CI",
        job_name=name,
        run_id=run,
        run_attempt=attempt,
        status="completed" if ended else "in_progress",
        conclusion=how if ended else None,
        flags=flags,
        received_at=received_at,
        updated_at=START,
    )


def run_status(run, attempt, how, event):
    """Return what is known from GitHub about an attempt."""
    known = {"run_id": run, "run_attempt": attempt, "backend_key": REPO}
    if how in ASKED:
        return row(RunStatusRow, **known, status=how)
    event = None if event == "none" else event or "repository_dispatch"
    if how == "running":
        return row(RunStatusRow, **known, status="in_progress", event=event)
    return row(RunStatusRow, **known, status="completed", conclusion=how, event=event)


def judged(drawing: Drawing) -> str:
    """Return the backend's state on the head and what the gate makes of it, in words."""
    entry, words = drawing.entry, drawing.words
    allowlist = Allowlist(entries=(entry,) if entry else ())
    ignored = {(HEAD, REPO): row(IgnoreRow, login="alice", reason="lab moves", base_ref="main")}
    judge = HeadJudge(
        settings=Site(),
        allowlist=None if "no_allowlist" in words else allowlist,
        repo=UPSTREAM,
        number=7,
        labels=frozenset(),
        ignored=ignored if "ignored" in words else {},
        now=drawing.now,
    )
    known = {} if drawing.dispatch == "none" else {REPO: facts_of(drawing)}
    head = judge.head(HEAD, known, expecting=True, base_ref="main")
    decided = gate.judge_gate(head.view.backends, unknown=head.view.gate_unknown).state
    shown = head.view.backends[0].state if head.view.backends else None
    if REPO in head.facts and shown is None:  # L1 is not shown
        shown = state_of(head.facts[REPO], entry, now=drawing.now)
    return f"{shown or 'nothing'}, gate {decided}"
