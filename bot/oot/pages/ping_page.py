"""GET /oot/{org}/{repo}/pings/{id} and its JSON: the steps of a test dispatch."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Struct

from bot.oot.dispatch.ping_steps import Step, outcome_of, read_steps
from bot.oot.pages.backend_parameters import BACKEND, NOTHING, RESULTS
from bot.oot.reports.pings import PREFIX
from bot.oot.reports.store import pings
from bot.oot.reports.tables import PingRow
from bot.web import view_parameters as declare
from bot.web.answers import Time, fill, matching, one_of, time
from bot.web.refusals import Refused
from bot.web.row_answers import RowAnswer
from bot.web.view import Json, Page, View

if TYPE_CHECKING:
    from bot.web.asked import Asked

REFRESH = 5  # seconds between two looks at a ping that goes on
STATES = ("ok", "failed", "waiting")
UNKNOWN_PING = Refused(404, "unknown_ping", "no ping of that id was sent to this backend, or it is private")
PING_ID = re.compile(f"{PREFIX}[0-9a-f-]{{36}}")
IDENTIFIER = declare.in_path(
    "id", Annotated[str, matching(PING_ID)], "id of the ping", parse=lambda text: text[:100], default=""
)


class PingStep(Struct, frozen=True, kw_only=True):
    """One step of a ping."""

    name: str
    state: Annotated[str, one_of(STATES)]
    words: str
    at: Time | None


class Ping(
    RowAnswer, row=PingRow, only=("id", "backend", "requested_by", "created_at"), frozen=True, kw_only=True
):
    """A test dispatch and how far it has come"""

    outcome: Annotated[str, one_of(STATES)]
    words: str
    steps: list[PingStep]


@dataclass(frozen=True, kw_only=True)
class FoundPing:
    """A ping and its steps."""

    row: PingRow
    steps: list[Step]

    @property
    def state(self) -> str:
        """How it went as a whole."""
        return outcome_of(self.steps)[0]

    @property
    def words(self) -> str:
        """Where it stands."""
        return outcome_of(self.steps)[1]


async def read_ping(asked: Asked) -> FoundPing:
    """Read a ping; raises Rejected 404."""
    row = None if asked.hidden.has(asked[BACKEND]) else await pings.get_ping(asked.tx, asked[IDENTIFIER])
    if row is None or row["backend_key"] != asked[BACKEND].casefold():
        raise UNKNOWN_PING.because(f"{asked[BACKEND][:200]} has no ping {asked[IDENTIFIER]}")
    return FoundPing(row=row, steps=await read_steps(asked.tx, row))


def show(found: FoundPing) -> dict[str, Any]:
    """Return what the page shows."""
    return {"ping": found.row, "steps": found.steps, "state": found.state, "words": found.words}


def answer(found: FoundPing) -> Ping:
    """Return the ping as JSON."""
    return fill(
        Ping,
        found.row,
        outcome=found.state,
        words=found.words,
        steps=[
            PingStep(name=step.name, state=step.state, words=step.words, at=time(step.at))
            for step in found.steps
        ],
    )


VIEW = View(
    read=read_ping,
    of_upstream=True,
    parameters=(BACKEND, IDENTIFIER),
    page=Page(
        path="/oot/{org}/{repo}/pings/{id}",
        template="ping.html",
        values=show,
        refresh=lambda found: REFRESH if found.state == "waiting" else 0,
    ),
    json=Json(
        path="/api/oot/backends/{org}/{repo}/pings/{id}",
        answer=answer,
        content=Ping,
        name="ping",
        summary="The steps of a test dispatch",
        topic=RESULTS,
        refusals=(NOTHING, UNKNOWN_PING),
        link=lambda found: {"repo": found.row["backend"], "id": found.row["id"]},
    ),
)
