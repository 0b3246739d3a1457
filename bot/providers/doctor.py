"""What operators see of other CIs: when each last reported, and which projects are not mapped."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

import aiohttp

from bot.core import json_fields
from bot.core.errors import StoreUnavailable, in_words
from bot.core.feature import Finding, ok, warning
from bot.core.json_fields import Unreadable
from bot.core.text import duration, plural
from bot.ingest import inbox
from bot.providers import buildkite, tables
from bot.providers.feature import BUILDKITE, CIRCLECI, providers_of
from bot.queue.sums import DAY
from bot.web.blocks import AdminSection, Block, BlockLine

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.ops.doctor import Target
    from bot.providers.feature import Provider
    from bot.providers.tables import QueueRow, UnmappedRow
    from bot.web.blocks import Tone

CHECK = "other CIs"
SILENT_DAYS = 7
SHOWN = 5  # projects
PATIENCE = 3.0  # seconds
SCOPES_PATH = "/v2/access-token"  # https://buildkite.com/docs/apis/rest-api/access-token
ANSWER_MOST = 64 * 1024  # bytes
REFUSED = re.compile(
    r'^ootbot_provider_refused_total\{provider="(\w+)",reason="invalid_signature"\} ([0-9.e+]+)$',
    re.MULTILINE,
)
AGENT_DAYS, UNMAPPED_DAYS = 7, 7
UNMAPPED_MOST = 20  # projects
SILENT = "CircleCI tells only of finished jobs: what waits or runs there is not known."


async def check_providers(target: Target) -> list[Finding]:
    """Check every other CI of the settings."""
    kinds = sorted({ci.kind for ci in providers_of(target.settings)})
    if not kinds or not await target.has_database():
        return []
    try:
        async with target.store.read() as tx:
            last = await tables.read_last_events(tx)
            unmapped = await tables.read_unmapped(tx, since=tx.now - UNMAPPED_DAYS * DAY, limit=SHOWN)
            pushed, now = await inbox.read_last_received(tx), tx.now
    except StoreUnavailable:
        return []  # another check says so
    findings = [_heard(kind, last.get(kind), pushed, now) for kind in kinds]
    findings += [_unmapped(project) for project in unmapped]
    findings += [await _api_token(target, ci) for ci in providers_of(target.settings) if ci.api_token]
    return findings + await _refused(target)


async def describe_queue(tx: Transaction, settings: Settings, repo: str) -> list[Block]:
    """Describe the agents that run a repository's jobs on other CIs, and what these CIs do not tell."""
    mapped = [ci for ci in providers_of(settings) if _is_mapped(ci, repo)]
    blocks: list[Block] = []
    organizations = {name for ci in mapped if ci.kind == BUILDKITE for name in _organizations(ci, repo)}
    if organizations:
        queues = await tables.read_queues(tx, organizations, since=tx.now - AGENT_DAYS * DAY)
        blocks.append(Block(heading="Agents of Buildkite", lines=_agent_lines(queues)))
    if any(ci.kind == CIRCLECI for ci in mapped):
        blocks.append(Block(heading="CircleCI", lines=(BlockLine(text=SILENT),)))
    return blocks


async def describe_unmapped(tx: Transaction, settings: Settings) -> AdminSection:
    """Describe the unmapped projects of other CIs, if any CI delivers here."""
    projects = []
    if providers_of(settings):
        projects = await tables.read_unmapped(tx, since=tx.now - UNMAPPED_DAYS * DAY, limit=UNMAPPED_MOST)
    return AdminSection(template="admin_providers.html", values={"unmapped": projects, "days": UNMAPPED_DAYS})


def _heard(kind: str, at: int | None, pushed: int | None, now: int) -> Finding:
    """Say when a CI's last event came; a warning if it is long ago and GitHub has sent events since."""
    active = pushed is not None and now - pushed < SILENT_DAYS * DAY
    todo = "look at the webhook's own log there; `ootbot providers` says what its form should hold"
    if at is None:
        detail = f"no event of {kind} has ever arrived"
        return warning(CHECK, detail, todo)
    words = f"{kind} was last heard of {duration((now - at) / 1000)} ago"
    if active and now - at > SILENT_DAYS * DAY:
        return warning(CHECK, f"{words}, GitHub since", todo)
    return ok(CHECK, words)


def _unmapped(row: UnmappedRow) -> Finding:
    kind, _, project = row["repo"].partition(":")
    events = plural(row["events"], "event")
    detail = f"{events} of the {kind} project {project[:200]}, which is mapped to no repository"
    todo = "map it in PROVIDERS, then `ootbot providers --take-up`; or leave it out of the webhook"
    return warning(CHECK, detail, todo)


async def _api_token(target: Target, ci: Provider) -> Finding:
    """Ask Buildkite what an API token may do: logs are fetched with it."""
    scopes = " and ".join(ci.api_scopes)
    todo = f"make one there with the scopes {scopes}, and put it into {ci.api_variable}"
    headers, timeout = (
        {"Authorization": f"Bearer {ci.api_token}"},
        aiohttp.ClientTimeout(total=PATIENCE),
    )
    try:
        async with target.http.get(
            f"{ci.api_url}{SCOPES_PATH}", headers=headers, timeout=timeout
        ) as response:
            status = response.status
            body = json_fields.decode(await response.content.read(ANSWER_MOST)) if status == 200 else {}
    except (aiohttp.ClientError, TimeoutError) as problem:
        return warning(CHECK, f"{ci.api_url} cannot be asked: {in_words(problem)}", "look at the network")
    except Unreadable as problem:
        return warning(CHECK, f"{ci.api_url} gave an odd answer: {problem}", "look at api_url")
    if status != 200:
        return warning(CHECK, f"Buildkite answered {status} to the API token in {ci.api_variable}", todo)
    granted = json_fields.read_member(body, ("scopes",), json_fields.Kind.TEXTS) or ()
    if lacking := set(ci.api_scopes) - set(granted):
        words = f"the API token in {ci.api_variable} lacks {' and '.join(sorted(lacking))}"
        return warning(CHECK, words, todo)
    return ok(CHECK, f"the API token in {ci.api_variable} has {scopes}")


async def _refused(target: Target) -> list[Finding]:
    """Ask the running bot how many signatures were wrong since it started; it may not be running."""
    try:
        timeout = aiohttp.ClientTimeout(total=PATIENCE)
        async with target.http.get(
            f"http://{target.settings.listening}/metrics", timeout=timeout
        ) as response:
            text = await response.text() if response.status == 200 else ""
    except (aiohttp.ClientError, TimeoutError, UnicodeDecodeError):
        return []
    refusals = [(kind, round(float(count))) for kind, count in REFUSED.findall(text) if float(count)]
    todo = "compare the secret there with the variable that PROVIDERS names, and the clock"
    return [
        warning(
            CHECK, f"{plural(count, 'request')} of {kind} had a wrong signature since the bot started", todo
        )
        for kind, count in refusals
    ]


def _is_mapped(ci: Provider, repo: str) -> bool:
    return any(name.casefold() == repo.casefold() for name in ci.projects.values())


def _organizations(ci: Provider, repo: str) -> set[str]:
    mapped = [project for project, name in ci.projects.items() if name.casefold() == repo.casefold()]
    return {project.partition("/")[0] for project in mapped}


def _agent_lines(queues: Iterable[QueueRow]) -> tuple[BlockLine, ...]:
    """Return a line for each queue: how many agents are connected, and how many were lost in the last days."""
    by_queue: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for row in queues:
        by_queue[row["queue"]][row["state"]] = row["agents"]
    lines = []
    for queue, states in sorted(by_queue.items()):
        there, lost = states.get(buildkite.CONNECTED, 0), states.get(buildkite.LOST, 0)
        others = [f"{count} {state}" for state, count in states.items() if state != buildkite.CONNECTED]
        words = f"queue={queue}: {plural(there, 'agent')} connected"
        words += f"; {', '.join(others)} in the last {AGENT_DAYS} days" if others else ""
        tone: Tone = "bad" if not there else "warn" if lost else "good"
        lines.append(BlockLine(text=words, tone=tone))
    return tuple(lines) or (BlockLine(text="no agent is known: tick agent.* in the webhook"),)
