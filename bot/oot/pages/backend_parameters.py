"""Parameters and refusals that views of backends share."""

from __future__ import annotations

import re
from typing import Annotated

from bot.web import operations as op
from bot.web import parameters
from bot.web import view_parameters as declare
from bot.web.answers import matching
from bot.web.asked import Parameter
from bot.web.refusals import INVALID_PARAMETER, Refused

RESULTS = op.Topic("Results", "What the pages show.")
NOTHING = Refused(404, "not_found", "nothing of that name may be shown")
UNKNOWN_BACKEND = Refused(404, "unknown_backend", "not on the allowlist, and it has never reported")

BACKEND = declare.repository("org")
DAYS = declare.days()
LEVEL = declare.optional_whole("level", 4, "only backends of this level")
WORDS = Parameter(
    "q",
    parameters.words,
    "",
    (op.in_query("q", op.Text, "only backends whose name or device contains these words"),),
)
LOGIN = re.compile(r"@?([A-Za-z0-9](?:[A-Za-z0-9_-]{0,99}))(?:\[bot\])?")


def _login(text: str) -> str:
    found = LOGIN.fullmatch(text)
    if found is None:
        raise INVALID_PARAMETER.because("oncall must be somebody's name on GitHub, as the allowlist has it")
    return found[1].casefold()


ONCALL = declare.parsed(
    "oncall",
    Annotated[str, matching(LOGIN)],
    "only backends that this person is on call for",
    parse=_login,
    default="",
)
_REPORTED = "|".join(parameters.REPORTED)
_EVENTS = Annotated[str, matching(f"({_REPORTED})(,({_REPORTED}))*")]
EVENTS = Parameter(
    "event",
    parameters.events,
    None,
    (op.in_query("event", _EVENTS, "only jobs of this event, or of several"),),
)
