"""Commands in comments: how they are written, parsed and described."""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from bot.core.feature import load_each

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from markdown_it.token import Token

    from bot.context import Context
    from bot.core.feature import Features
    from bot.oot.commands.execute_command import CommandOutcome, CommandRequest

MOST_COMMANDS = 5  # of one comment that are carried out
MOST_BACKENDS = 20  # named in one command
LONGEST_PARAGRAPH = 4000  # characters: parsing much longer ones as Markdown can take a second
LONGEST_LINE = 500  # characters of a line that are kept
LONGEST_REASON = 300  # characters
VERBS = ("help", "status", "run", "rerun", "cancel", "ignore", "ping")
USAGE = (
    "/oot help | status [backend] | run <backend..> | rerun [backend..] [--all] | cancel [backend..] | "
    "ignore <backend> <reason>"
)
_LIKE_COMMAND = re.compile(r"^ {0,3}/oot(?!\S)", re.MULTILINE)
_WORD = "/oot"
_NONE: Mapping[str, str] = MappingProxyType({})
NEAR = "the author of the pull request, people with write access, those on call for the backend"


@dataclass(frozen=True, kw_only=True)
class Command:
    """One command; `problem` is the reason why it cannot be carried out as written, if it cannot."""

    text: str  # the line
    verb: str = ""  # of VERBS; empty when there is a problem
    backends: tuple[str, ...] = ()  # as they were named: device or owner/repo
    everything: bool = False  # --all
    reason: str = ""
    words: tuple[str, ...] = ()  # of a further command: all that follows its verb
    problem: str = ""


@dataclass(frozen=True, kw_only=True)
class FurtherCommand:
    """A command that another capability adds, on pull requests, open or closed, and on issues."""

    verb: str
    usage: str  # without `/oot`
    does: str
    who: str  # may give it
    # may be called again for the same request, and then comes to the same
    carry_out: Callable[[Context, CommandRequest, Sequence[str]], Awaitable[CommandOutcome]]


@dataclass(frozen=True, kw_only=True)
class CommandDescription:
    """A command, for people."""

    verb: str
    usage: str  # without `/oot`
    does: str
    who: str


def may_hold_command(body: str) -> bool:
    """Return whether a comment is worth parsing: most are not, and this costs nothing."""
    return _LIKE_COMMAND.search(body.replace("\r", "\n")) is not None


def parse_commands(body: str, further: Mapping[str, str] = _NONE) -> tuple[Command, ...]:
    """Return the commands of a comment in order, at most MOST_COMMANDS; `further` are usages of other verbs."""
    if not may_hold_command(body):
        return ()
    lines = (line for line in _plain_lines(body) if line.split(maxsplit=1)[:1] == [_WORD])
    return tuple(_parse_line(line, further) for line, _ in zip(lines, range(MOST_COMMANDS), strict=False))


def usage(further: Mapping[str, str]) -> str:
    """Return how every command is written."""
    return " | ".join([USAGE, *further.values()])


def further_commands(features: Features) -> dict[str, FurtherCommand]:
    """Return the commands that other capabilities add, by verb."""
    return {
        command.verb: command for commands in load_each(features, "comment_commands") for command in commands
    }


OWN_COMMANDS = (
    CommandDescription(verb="help", usage="help", does="lists the commands", who="anyone"),
    CommandDescription(
        verb="status",
        usage="status [backend]",
        does="shows the state of all backends, or of one",
        who="anyone",
    ),
    CommandDescription(
        verb="rerun",
        usage="rerun [backend..] [--all]",
        does="re-runs failed jobs, with --all every job; without names, of every backend that failed",
        who=NEAR,
    ),
    CommandDescription(
        verb="cancel",
        usage="cancel [backend..]",
        does="cancels the runs of these backends; without names, everything that is running",
        who=NEAR,
    ),
    CommandDescription(
        verb="run",
        usage="run <backend..>",
        does="dispatches the commit again, also to backends that were listed after it was pushed",
        who="people with write access, those on call for the backend",
    ),
    CommandDescription(
        verb="ignore",
        usage="ignore <backend> <reason>",
        does="counts the backend as passed for the gate, on this commit and base branch only",
        who="people with write access",
    ),
    CommandDescription(
        verb="ping",
        usage="ping",
        does="on an issue of a backend's own repository: sends a test dispatch, whose steps the backend's page shows",
        who="people with write access to the backend, those on call for it",
    ),
)


def describe_commands(features: Features) -> list[CommandDescription]:
    """Describe all commands: the built-in ones, then those of other capabilities."""
    further = further_commands(features).values()
    return [
        *OWN_COMMANDS,
        *(
            CommandDescription(verb=command.verb, usage=command.usage, does=command.does, who=command.who)
            for command in further
        ),
    ]


def _plain_lines(body: str) -> Iterator[str]:
    """Yield the lines of the comment's own paragraphs, markup left out."""
    from markdown_it import MarkdownIt  # noqa: PLC0415 - most processes never see a command

    # quotes and lists are not parsed: nothing in them is a command, and deep nesting takes long
    blocks = MarkdownIt("commonmark", {"maxNesting": 1}).disable("inline")
    spans = MarkdownIt("commonmark").disable(["escape", "entity"])
    defined: dict[str, Any] = {}  # link references, anywhere in the comment
    own = False
    for token in blocks.parse(body, defined):
        if own and len(token.content) <= LONGEST_PARAGRAPH and may_hold_command(token.content):
            for inline in spans.parseInline(token.content, defined):
                yield from _lines(inline.children or [])
        own = token.type == "paragraph_open" and token.level == 0


def _lines(children: list[Token]) -> Iterator[str]:
    """Yield a paragraph's lines; anything but text keeps its markup, so a line that begins with it is no command."""
    line = ""
    for child in children:
        if child.type in {"softbreak", "hardbreak"}:
            yield line
            line = ""
        elif child.type == "text":
            line += child.content
        else:
            line += f"{child.markup or '['}{child.content}"
    yield line


def _parse_line(line: str, further: Mapping[str, str]) -> Command:
    text = line.strip()[:LONGEST_LINE]
    _, *words = text.split()
    verb, rest = (words[0].lower(), words[1:]) if words else ("help", [])
    if verb in further:
        return Command(text=text, verb=verb, words=tuple(rest))
    if verb not in VERBS:
        return Command(text=text, problem=f"there is no such command; there are: {usage(further)}")
    if verb == "ignore":
        return _parse_ignore(text, rest)
    named = tuple(dict.fromkeys(word.removeprefix("@").strip(",") for word in rest if word != "--all"))
    everything = "--all" in rest
    problem = ""
    if any(name.startswith("-") for name in named) or (everything and verb != "rerun"):
        problem = "only rerun has an option, --all"
    elif verb == "run" and not named:
        problem = "name the backends to run: /oot run <backend..>"
    elif verb == "status" and len(named) > 1:
        problem = "name one backend, or none: /oot status [backend]"
    elif len(named) > MOST_BACKENDS:
        problem = f"name at most {MOST_BACKENDS} backends"
    if problem:
        return Command(text=text, problem=problem)
    return Command(text=text, verb=verb, backends=() if verb == "help" else named, everything=everything)


def _parse_ignore(text: str, rest: list[str]) -> Command:
    reason = " ".join(rest[1:])[:LONGEST_REASON]
    if not reason:
        return Command(text=text, problem="say which backend and why: /oot ignore <backend> <reason>")
    return Command(text=text, verb="ignore", backends=(rest[0],), reason=reason)
