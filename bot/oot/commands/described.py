"""What each command in a comment does and who may give it, in words for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.oot.commands.further import further_commands

if TYPE_CHECKING:
    from bot.core.feature import Features

NEAR = "the author of the pull request, people with write access, those on call for the backend"


@dataclass(frozen=True, kw_only=True)
class Described:
    """A command, for people."""

    verb: str
    usage: str  # without `/oot`
    does: str
    who: str


OWN = (
    Described(verb="help", usage="help", does="lists the commands", who="anyone"),
    Described(
        verb="status",
        usage="status [backend]",
        does="shows the state of all backends, or of one",
        who="anyone",
    ),
    Described(
        verb="rerun",
        usage="rerun [backend..] [--all]",
        does="re-runs failed jobs, with --all every job; without names, of every backend that failed",
        who=NEAR,
    ),
    Described(
        verb="cancel",
        usage="cancel [backend..]",
        does="cancels the runs of these backends; without names, everything that is running",
        who=NEAR,
    ),
    Described(
        verb="run",
        usage="run <backend..>",
        does="dispatches the commit again, also to backends that were listed after it was pushed",
        who="people with write access, those on call for the backend",
    ),
    Described(
        verb="ignore",
        usage="ignore <backend> <reason>",
        does="counts the backend as passed for the gate, on this commit and base branch only",
        who="people with write access",
    ),
    Described(
        verb="ping",
        usage="ping",
        does="on an issue of a backend's own repository: sends a test dispatch, whose steps the backend's page shows",
        who="people with write access to the backend, those on call for it",
    ),
)


def describe_commands(features: Features) -> list[Described]:
    """Return all commands: our own, then those that capabilities bring."""
    further = further_commands(features).values()
    return [*OWN, *(Described(verb=one.verb, usage=one.usage, does=one.does, who=one.who) for one in further)]
