"""What kind of file an artifact is, by globs over its name; the first that matches wins."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

OTHER = "other"  # indexed only
Kinds = tuple[tuple[str, tuple[str, ...]], ...]  # kind and its globs, in order
DEFAULT: Kinds = (
    ("usage", ("usage-log*", "logs-test-*", "*utilization*")),
    ("jsons", ("test-jsons-*",)),
    ("sccache", ("sccache-stats*",)),
    ("runreport", ("torchci-reports*",)),
    ("junit", ("test-report*", "*junit*", "*test-results*", "*surefire*", "*pytest*")),
    ("metrics", ("ootbot-metrics*",)),
    ("benchmark", ("benchmark-results*", "*perf-stats*")),
)
KNOWN = frozenset(kind for kind, _ in DEFAULT) | {OTHER}


def kind_of(name: str, kinds: Kinds) -> str:
    """Return the kind of the artifact of this name, ignoring case."""
    folded = name.casefold()
    return next((kind for kind, globs in kinds if name_matches(folded, globs)), OTHER)


def name_matches(folded: str, globs: Iterable[str]) -> bool:
    """Whether one of some globs matches a case folded name."""
    return any(fnmatchcase(folded, glob.casefold()) for glob in globs)


def parse_kinds(text: str) -> Kinds:
    """Read the setting: a JSON object from kind to a glob, or a list of them; raises ValueError."""
    try:
        given = msgspec.json.decode(text, type=dict[str, str | list[str]])
    except msgspec.MsgspecError as error:
        raise ValueError(
            f'write a table from kind to globs, as in {{"junit": ["*junit*"]}}: {error}'
        ) from None
    if unknown := given.keys() - KNOWN:
        raise ValueError(
            f"{', '.join(sorted(unknown))} is no kind of artifact: known are {', '.join(sorted(KNOWN))}"
        )
    return tuple(
        (kind, (globs,) if isinstance(globs, str) else tuple(globs)) for kind, globs in given.items()
    )


def format_kinds(kinds: Kinds) -> str:
    """Return kinds as the setting is written."""
    return msgspec.json.encode(dict(kinds)).decode()
