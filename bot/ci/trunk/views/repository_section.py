"""What the grid adds to the home of a repository, how its branches stand, and to a page that is not there."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING
from urllib.parse import quote

from bot.ci.trunk import branch_standing, reading
from bot.ci.trunk.branch_standing import describe_standing
from bot.ci.trunk.store import branches, commit_words, rows
from bot.core.errors import Rejected
from bot.core.links import web_url
from bot.web import parameters
from bot.web.blocks import Block, BlockLine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.ci.trunk.branch_standing import Standing
    from bot.ci.trunk.reading import Branch
    from bot.db.transaction import Transaction
    from bot.web.subjects import MissingSubject, RepositorySubject

JUDGED = 5  # branches, those with the newest commits: reading one takes a while
NAMED = 30  # further branches
BROKEN = 10  # jobs of a branch


async def describe_repository(tx: Transaction, subject: RepositorySubject) -> list[Block]:
    """Return how the watched branches stand, and what is broken on them."""
    asked = subject.asked
    with contextlib.suppress(Rejected):
        default = await reading.find_branch(tx, asked.hidden, subject.repo, "")
        names = await _branches(tx, default)
        watched = [one for one in names if branches.watched(asked.settings, default.repository, one)]
        judged = [
            await branch_standing.read_standing(tx, asked.settings, _branch(default, one))
            for one in watched[:JUDGED]
        ]
        found = (
            [_standings(judged, default, tx.now, web_url(asked.settings.github_api_url))] if judged else []
        )
        others = [one for one in names if one not in watched[:JUDGED]]
        return [*found, *_red_now(judged, default), *_others(others, default)]
    return []


async def describe_missing(tx: Transaction, subject: MissingSubject) -> list[Block]:
    """Return the branches of a repository whose page, of a branch for instance, is not there."""
    with contextlib.suppress(Rejected):
        default = await reading.find_branch(tx, subject.asked.hidden, subject.repo, "")
        names = await _branches(tx, default)
        home = default.repository["full_name"]
        lines = [BlockLine(text=one, url=_grid(default, one)) for one in names[:NAMED]]
        found = [Block(heading=f"Branches of {home}", lines=tuple(lines))] if lines else []
        return [Block(heading="Its repository", lines=(BlockLine(text=home, url=f"/{home}"),)), *found]
    return []


async def lead_to_commit(tx: Transaction, subject: MissingSubject) -> str | None:
    """Return the commit that a pull request became: one from before the App was installed has no page of its own."""
    number = subject.asked.request.match_info.get("number", "")
    if subject.code != "unknown_pull_request" or not subject.repo or not parameters.number(number):
        return None
    with contextlib.suppress(Rejected):
        repository = (await reading.find_branch(tx, subject.asked.hidden, subject.repo, "")).repository
        sha = await commit_words.commit_of_pull(tx, repository["repository_id"], parameters.number(number))
        return f"/{repository['full_name']}/commit/{sha}" if sha else None
    return None


async def _branches(tx: Transaction, default: Branch) -> list[str]:
    """Return the branches that exist: the default one, then those with the newest commits."""
    identifier = default.repository["repository_id"]
    known = await rows.branches(tx, identifier)
    gone = await branches.deleted(tx, identifier, known)
    return sorted((one for one in known if one not in gone), key=lambda one: one != default.name)


def _branch(default: Branch, name: str) -> Branch:
    return reading.Branch(repository=default.repository, names=default.names, name=name)


def _standings(judged: Sequence[Standing], default: Branch, now: int, github: str) -> Block:
    lines = [
        BlockLine(text=describe_standing(one, now=now), url=_grid(default, one.branch), tone=one.tone)
        for one in judged
    ]
    repository = f"{github}/{default.repository['full_name']}"
    lines += [
        BlockLine(
            text=f"what is on {default.name} and not on {one.branch}",
            url=f"{repository}/compare/{quote(one.branch, safe='')}...{quote(default.name, safe='')}",
        )
        for one in judged
        if one.branch != default.name
    ]
    return Block(heading="Branches", lines=tuple(lines))


def _red_now(judged: Sequence[Standing], default: Branch) -> list[Block]:
    lines = []
    for one in judged:
        for trouble in (*one.blocking, *one.watched)[:BROKEN]:
            words = "" if trouble.blocks else ", only watched"
            since = f"broken on {one.branch} since {trouble.first_bad['sha'][:7]}"
            lines.append(
                BlockLine(
                    text=f"{trouble.name}: {since}{words}",
                    url=f"{_grid(default, one.branch)}?cell={trouble.newest['sha'][:12]}.{trouble.key}#cell",
                    tone="bad" if trouble.blocks else "warn",
                )
            )
    return [Block(heading="Red now", lines=tuple(lines))] if lines else []


def _others(names: Sequence[str], default: Branch) -> list[Block]:
    if not names:
        return []
    lines = tuple(BlockLine(text=one, url=_grid(default, one)) for one in names[:NAMED])
    summary = f"{len(names)} more branches" if len(names) > 1 else "1 more branch"
    return [Block(heading="Further branches", lines=(), folded=lines, summary=summary)]


def _grid(default: Branch, name: str) -> str:
    return f"/hud/{default.repository['full_name']}/{quote(name)}"
