"""The command `/oot bisect`, by write access or on call for the backend; and the administrator's forms."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import structlog

from bot.core.errors import GitHubRefused
from bot.db.store import LOCK_TIMEOUT
from bot.oot.commands.execute_command import CommandOutcome
from bot.oot.commands.syntax import FurtherCommand
from bot.oot.culprits.start import (
    Refused,
    UnknownCommit,
    WantedSearch,
    cancel_search,
    find_entry,
    start_search,
)
from bot.oot.dispatch.redispatch import may_write
from bot.oot.results.visibility import read_private_names
from bot.web.access import CONTEXT
from bot.web.blocks import ADMINISTRATOR, FormDone

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aiohttp import web

    from bot.context import Context
    from bot.oot.commands.execute_command import CommandRequest
    from bot.oot.culprits.start import StartedSearch

log = structlog.get_logger("bot.oot.culprits.command")

USAGE = "bisect <backend> [job or test] [<good>..<bad>]"
RANGE = re.compile(r"(?P<good>[^.\s]*)\.\.(?P<bad>[^.\s]*)")
FIELD_MOST = 500  # characters


async def carry_out(context: Context, request: CommandRequest, words: Sequence[str]) -> CommandOutcome:
    """Begin a search; a second request for the same names the search under way."""
    try:
        wanted = read_words(request, words)
        await _check_person(context, request, wanted)
        started = await begin(context, wanted)
    except Refused as reason:
        return CommandOutcome(done=False, answer=str(reason), head_sha=None)
    return CommandOutcome(done=True, answer=describe_started(context, started), head_sha=None)


def read_words(request: CommandRequest, words: Sequence[str]) -> WantedSearch:
    """Return what a command asks for; raises Refused."""
    if not words:
        raise Refused(f"say which backend: /oot {USAGE}")
    backend, *rest = words
    ranges = [word for word in rest if RANGE.fullmatch(word)]
    if len(ranges) > 1:
        raise Refused(f"name one range of commits: /oot {USAGE}")
    match = RANGE.fullmatch(ranges[0]) if ranges else None
    return WantedSearch(
        repo=request.repo,
        backend=backend.removeprefix("@").strip(","),
        what=" ".join(word for word in rest if word not in ranges),
        good=match["good"] if match else "",
        bad=match["bad"] if match else "",
        by=request.login,
        reason=f"asked for in #{request.number}",
        comment_on=request.number,
    )


async def begin(context: Context, wanted: WantedSearch) -> StartedSearch:
    """Begin a search, asking GitHub once about a commit that is not known here. Raises Refused."""
    try:
        async with context.store.transaction() as tx:
            return await start_search(tx, context.settings, wanted)
    except UnknownCommit as unknown:
        raise Refused(await _words_of_github(context, wanted.repo, unknown)) from unknown


def describe_started(context: Context, started: StartedSearch) -> str:
    """Return the answer to the person who asked."""
    row = started.row
    page = f"{context.settings.url}/{row['upstream_repo']}/bisects/{row['id']}"
    name = row["test"] or row["job"]
    began = "is searched" if started.is_new else "is being searched already"
    return f"the commit that broke {name} {began}, from {row['good_sha'][:7]} to {row['bad_sha'][:7]}: {page}"


BISECT = FurtherCommand(
    verb="bisect",
    usage=USAGE,
    does="finds the upstream commit that broke the backend by running its CI on commits in between",
    who="people with write access, those on call for the backend",
    carry_out=carry_out,
)
COMMANDS = (BISECT,)


async def begin_search(request: web.Request, fields: Mapping[str, str]) -> FormDone:
    """Begin a search, and show its page."""
    given = {name: value.strip()[:FIELD_MOST] for name, value in fields.items()}
    wanted = WantedSearch(
        repo=given.get("repo", ""),
        backend=given.get("backend", "") or "upstream",
        what=given.get("what", ""),
        signature=given.get("signature", ""),
        branch=given.get("branch", ""),
        good=given.get("good", ""),
        bad=given.get("bad", ""),
        by=ADMINISTRATOR,
        reason=given.get("reason", ""),
    )
    try:
        started = await begin(request.app[CONTEXT], wanted)
    except Refused as reason:
        return FormDone(words=f"no search was started: {reason}")
    return FormDone(path=f"/{started.row['upstream_repo']}/bisects/{started.row['id']}")


async def cancel(request: web.Request, _fields: Mapping[str, str]) -> FormDone:
    """Cancel a search, and show its page."""
    identifier = request.match_info["id"][:40]
    try:
        async with request.app[CONTEXT].store.transaction(lock_timeout=LOCK_TIMEOUT) as tx:
            row = await cancel_search(tx, identifier, by=ADMINISTRATOR)
    except Refused as reason:
        return FormDone(words=str(reason))
    return FormDone(path=f"/{row['upstream_repo']}/bisects/{row['id']}")


async def _check_person(context: Context, request: CommandRequest, wanted: WantedSearch) -> None:
    async with context.store.read() as tx:
        entry = await find_entry(tx, wanted.repo, wanted.backend)
        private = await read_private_names(tx, context.settings, {entry.repo}) if entry else None
    if entry and private and private.hides(entry.repo):
        # the answer would be public, and names its jobs
        raise Refused(f"{entry.label} is private: begin the search at /admin, or with `ootbot bisect start`")
    if may_write(request.role):
        return
    oncalls = entry.oncalls if entry else ()
    if request.login.casefold() not in {name.casefold() for name in oncalls}:
        who = f" or being on call for {entry.label}" if entry else ""
        raise Refused(f"{request.login} may not search: that takes write access{who}")


async def _words_of_github(context: Context, repo: str, unknown: UnknownCommit) -> str:
    """Ask GitHub why a commit cannot be an end of the search."""
    client = context.github.client(repo, contents="read")
    branch = unknown.branch
    try:
        compared = await client.getitem(
            client.path("compare/{basehead}"), {"basehead": f"{unknown.sha}...{branch}"}
        )
    except GitHubRefused as error:
        log.info("unknown commit", repo=repo, sha=unknown.sha, reason=str(error))
        if not error.gone:
            return f"{unknown.sha} is not known here, and GitHub does not say what it is: {error.message}"
        return f"GitHub knows no commit {unknown.sha} in {repo}"
    if compared.get("status") in {"ahead", "identical"}:
        older = f"{unknown.sha} is on {branch}, but not known here"
        return f"{older}: `ootbot ci backfill {repo}` reads what was before the App"
    return f"{unknown.sha} is not on {branch}: both ends have to be"
