"""The options of the grid."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from bot.ci.trunk import groups, name_patterns
from bot.core import setting_types
from bot.core.settings import option

NamedPatterns = tuple[tuple[str, str], ...]
BRANCHES_MOST = 50
HIDDEN = ("*stale*", "*label*", "generate-test-matrix*")


def table(text: str) -> dict[str, str]:
    """Read a table from text to text, as JSON; raises ValueError."""
    try:
        return msgspec.json.decode(text, type=dict[str, str])
    except msgspec.MsgspecError as error:
        raise ValueError(f'write a table of texts, as in {{"Linux": "linux"}}: {error}') from None


def aliases(text: str) -> NamedPatterns:
    """Read aliases: pattern -> what stands in place of what it matches."""
    found = tuple(table(text).items())
    name_patterns.check_patterns([pattern for pattern, _ in found])
    for pattern, replacement in found:
        name_patterns.check_replacement(pattern, replacement)
    return found


def patterns(text: str) -> tuple[str, ...]:
    """Read patterns over names, comma separated."""
    found = setting_types.words(text)
    name_patterns.check_patterns(found)
    return found


def costs(text: str) -> tuple[tuple[str, float], ...]:
    """Read what an hour of a runner costs: glob over its label -> money."""
    try:
        found = msgspec.json.decode(text, type=dict[str, float])
    except msgspec.MsgspecError as error:
        raise ValueError(
            f'write a table from label to money an hour, as in {{"npu.*": 4.2}}: {error}'
        ) from None
    if any(not 0 <= money < 1e6 for money in found.values()):
        raise ValueError("money an hour is a number from 0 to 1,000,000")
    return tuple(found.items())


def _as_json(pairs: tuple[tuple[str, object], ...]) -> str:
    return msgspec.json.encode(dict(pairs)).decode()


@dataclass(frozen=True, kw_only=True)
class TrunkSettings:
    """What the grid shows, and how."""

    ci_branches: tuple[str, ...] = option(
        "Branches watched beside the default one: globs, comma separated.",
        setting_types.words,
        default=(),
    )
    ci_hide: tuple[str, ...] = option(
        "Workflows and jobs that the grid leaves out: globs over their names, comma separated.",
        setting_types.words,
        default=HIDDEN,
    )
    ci_blocking: tuple[str, ...] = option(
        "Jobs that decide whether a commit is green: patterns (RE2) over `workflow / job`, comma separated; "
        "unset: every job that is not unstable.",
        patterns,
        default=(),
    )
    ci_checks: str = option(
        "Whether check runs of other Apps are columns of the grid: on, off.",
        setting_types.one_of("on", "off"),
        default="off",
    )
    ci_runner_cost: tuple[tuple[str, float], ...] = option(
        'Money an hour by glob over a runner\'s label, as in {"npu.*": 4.2}: a TOML table, or JSON.',
        costs,
        default=(),
        show=_as_json,
    )
    ci_groups: groups.Groups = option(  # noqa: RUF009 - a field, as the others
        "Groups of the grid's columns, name to pattern (RE2): a TOML table, or JSON; the first that matches. "
        'A table in it that is named as a repository, `[ci_groups."org/npu"]`, comes first there.',
        groups.read_groups,
        default=groups.shipped_groups(),
        show=groups.groups_as_json,
    )
    ci_aliases: NamedPatterns = option(  # noqa: RUF009 - the same
        "Names that jobs had before, pattern (RE2) to replacement: a TOML table, or JSON.",
        aliases,
        default=(),
        show=_as_json,
    )
    ci_runners: NamedPatterns = option(  # noqa: RUF009 - the same
        "What a job's runner is counted under, pattern (RE2) over its labels to a name: a TOML table, or JSON; "
        "the first that matches. Unset: its second label, else its first.",
        aliases,
        default=(),
        show=_as_json,
    )
