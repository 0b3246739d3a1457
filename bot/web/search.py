"""Searching everything by one text: what it may mean, and what the capabilities find by it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from bot.core import escaping
from bot.core.escaping import web_url
from bot.core.feature import load_each

if TYPE_CHECKING:
    from bot.web.blocks import Tone
    from bot.web.parameters import Query

LONGEST_SEARCH = 200  # characters
EACH_MOST = 6  # hits of one kind
HitKind = Literal[
    "pull request",
    "commit",
    "branch",
    "backend",
    "run",
    "job",
    "test",
    "failure",
    "command",
    "list",
    "logs",
    "repository",
]
ORDER: tuple[HitKind, ...] = (
    "repository", "pull request", "commit", "branch", "backend", "run", "job", "test", "failure", "command", "list",
    "logs",
)  # fmt: skip
FURTHER: frozenset[HitKind] = frozenset({"list", "logs"})  # kinds that lead to another search, and stand last
# kinds that are shown at once where a text has the number or the SHA of one
DIRECT: frozenset[HitKind] = frozenset({"pull request", "commit", "run", "job"})
_NUMBER = re.compile(r"(?:([\w.-]+/[\w.-]+))?#?(\d{1,18})")
_SHA = re.compile(r"(?:([\w.-]+/[\w.-]+)@)?([0-9a-f]{7,64})", re.IGNORECASE)
_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_ON_GITHUB = re.compile(
    r"([\w.-]+/[\w.-]+)(?:/(pull|commit|actions/runs|issues)/(\w+))?(?:/job/(\d+))?(?:[/?#].*)?"
)


@dataclass(frozen=True, kw_only=True)
class Hit:
    """Something that a text names; its texts come from outside: they are escaped where they are shown."""

    kind: HitKind
    title: str
    path: str  # on this bot
    repo: str = ""  # which it belongs to
    detail: str = ""
    tone: Tone | None = None
    exact: bool = False  # whether the text can mean nothing else of this kind


@dataclass(frozen=True, kw_only=True)
class SearchWords:
    """A text to be searched for, and what it may be."""

    text: str
    repo: str = ""  # a repository that it names
    number: int | None = None  # of a pull request, a run or a job
    sha: str = ""  # or the beginning of one; lower case
    job: int | None = None

    @property
    def folded(self) -> str:
        """The text for comparisons that ignore case."""
        return self.text.casefold()


def read_words(text: str, *, api_url: str) -> SearchWords:
    """Interpret a text: cut to one line, with an address on GitHub taken as what its page shows."""
    text = searched_text(text)
    github = web_url(api_url)
    if text.startswith(f"{github}/") and (match := _ON_GITHUB.fullmatch(text.removeprefix(f"{github}/"))):
        repo, what, name, job = match.groups()
        number = int(name) if name and name.isascii() and name.isdecimal() and len(name) <= 18 else None
        is_commit = what == "commit" and _SHA.fullmatch(name)
        return SearchWords(
            text=text,
            repo=repo,
            number=None if is_commit else number,
            sha=name.lower() if is_commit else "",
            job=int(job) if job and len(job) <= 18 else None,
        )
    if match := _NUMBER.fullmatch(text):
        sha = text if _SHA.fullmatch(text) else ""
        return SearchWords(text=text, repo=match[1] or "", number=int(match[2]), sha=sha.lower())
    if match := _SHA.fullmatch(text):
        return SearchWords(text=text, repo=match[1] or "", sha=match[2].lower())
    return SearchWords(text=text, repo=text if _NAME.fullmatch(text) else "")


def searched_text(text: str) -> str:
    """Return a text in the form that is searched for."""
    return escaping.one_line(text[:LONGEST_SEARCH])


async def find_hits(query: Query, text: str) -> list[Hit]:
    """Search all capabilities for a text; returns a few hits of each kind."""
    words = read_words(text, api_url=query.settings.github_api_url)
    if not words.text:
        return []
    hits: list[Hit] = []
    for search in load_each(query.context.features, "search"):
        hits += await search(query, words, EACH_MOST)
    unique: dict[tuple[HitKind, str], Hit] = {}
    for hit in hits:
        unique.setdefault((hit.kind, hit.path), hit)
    return sorted(unique.values(), key=lambda hit: (not hit.exact, ORDER.index(hit.kind)))


def only_exact(hits: list[Hit]) -> Hit | None:
    """Return the only exact hit; None where there is none or are several."""
    exact = [hit for hit in hits if hit.exact]
    return exact[0] if len(exact) == 1 else None
