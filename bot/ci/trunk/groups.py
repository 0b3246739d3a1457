"""Groups of columns: patterns over their names, for all repositories and for single ones."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from bot.ci.trunk import name_patterns
from bot.core import package_files
from bot.core.json_fields import FULL_NAME

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

Named = tuple[tuple[str, str], ...]  # name -> pattern; the first that matches wins


@dataclass(frozen=True, kw_only=True)
class Groups:
    """The groups of every repository, and those that single ones have before them."""

    everywhere: Named
    own: tuple[tuple[str, Named], ...] = ()  # by repository, case folded

    def of(self, names: Collection[str]) -> Named:
        """Return the groups of a repository, given by all its names, case folded.

        Its own come first; one of the same name as one for all stands in its place.
        """
        first = tuple(group for repo, groups in self.own if repo in names for group in groups)
        named = {name for name, _ in first}
        return (*first, *(group for group in self.everywhere if group[0] not in named))


def read_groups(text: str) -> Groups:
    """Read groups, JSON: name -> pattern, and `owner/name` -> such a table; raises ValueError.

    With tables of repositories only, the others keep the groups that are shipped.
    """
    try:
        given = msgspec.json.decode(text, type=dict[str, str | dict[str, str]])
    except msgspec.MsgspecError as error:
        raise ValueError(
            'write a table of texts, as in {"Linux": "linux"}, or of such tables by repository, '
            f'as in {{"org/npu": {{"GPU": "npu"}}}}: {error}'
        ) from None
    everywhere = {name: one for name, one in given.items() if isinstance(one, str)}
    tables = {name: one for name, one in given.items() if not isinstance(one, str)}
    own: dict[str, Named] = {}
    for repo, table in tables.items():
        if not FULL_NAME.fullmatch(repo):
            raise ValueError(f"{repo[:80]!r} is no repository: write owner/name")
        if repo.casefold() in own:
            raise ValueError(f"{repo} is there twice")
        own[repo.casefold()] = _checked(table, f" of {repo}")
    checked = _checked(everywhere, "") if everywhere or not own else shipped_groups().everywhere
    return Groups(everywhere=checked, own=tuple(own.items()))


def shipped_groups() -> Groups:
    """Return the groups of a bot whose settings choose none."""
    return Groups(everywhere=tuple(tomllib.loads(package_files.config("ci_groups.toml").read_text()).items()))


def groups_as_json(groups: Groups) -> str:
    """Return groups as `read_groups` takes them."""
    own = {repo: dict(table) for repo, table in groups.own}
    return msgspec.json.encode(dict(groups.everywhere) | own).decode()


def _checked(table: Mapping[str, str], where: str) -> Named:
    try:
        name_patterns.check_count(len(table))
    except ValueError as error:
        raise ValueError(f"groups{where}: {error}") from None
    for name, pattern in table.items():
        try:
            name_patterns.compile_pattern(pattern)
        except ValueError as error:
            raise ValueError(f"group {name[:80]}{where}: {error}") from None
    return tuple(table.items())
