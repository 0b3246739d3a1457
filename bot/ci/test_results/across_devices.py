"""One test on many devices: does it fail on a backend only, or upstream too? Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from bot.core import json_fields

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


class Across(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of the same test on the same commit of upstream; accelerators in order, backends by repository.

    Of a private repository nothing may be shown to others: the caller names the backends it may show.
    """

    upstream_id: int = 0  # upstream's repository; 0: it did not run there
    passed: Sequence[str] = ()  # upstream's accelerators on which it only passed
    failed: Sequence[str] = ()  # on which it failed
    failed_on: Sequence[int] = ()  # repositories of backends
    passed_on: Sequence[int] = ()


json_fields.learn(Across)
NOWHERE = Across()


def words(across: Across, names: Mapping[int, str]) -> str:
    """Return it in words; empty where there is nothing to compare. `names` are those that may be shown, by repository.

    >>> words(Across(upstream_id=1, passed=["cpu", "cuda"], failed_on=[2]), {1: "upstream", 2: "npu"})
    'fails on npu, passes upstream (cpu, cuda)'
    """
    failing = listed(sorted({names[one] for one in across.failed_on if one in names}, key=str.casefold))
    upstream = upstream_words(across) if across.upstream_id in names else ""
    if not failing:
        return upstream
    return ", ".join(part for part in (f"fails on {failing}", upstream) if part)


def upstream_words(across: Across) -> str:
    """Return what upstream's own jobs say of the test."""
    if across.failed:
        only = f" ({', '.join(across.failed)})"
        return f"fails upstream too{only if any(across.failed) else ''}"
    if across.passed:
        only = f" ({', '.join(across.passed)})"
        return f"passes upstream{only if any(across.passed) else ''}"
    return ""


def is_only_here(across: Across) -> bool:
    """Whether upstream's own jobs passed what fails on a backend."""
    return bool(across.passed) and not across.failed and bool(across.failed_on)


def listed(names: Sequence[str]) -> str:
    """Return names as a list in a sentence."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def compare_devices(
    upstream_id: int, upstream: Mapping[str, Collection[bool]], backends: Mapping[int, Collection[bool]]
) -> Across:
    """Return what became of a test: whether it passed, in each of upstream's jobs by accelerator, and on backends."""
    ran = {device or "": passed for device, passed in upstream.items() if passed}
    return Across(
        upstream_id=upstream_id if ran else 0,
        passed=sorted(device for device, passed in ran.items() if all(passed)),
        failed=sorted(device for device, passed in ran.items() if not all(passed)),
        failed_on=sorted(one for one, passed in backends.items() if passed and not all(passed)),
        passed_on=sorted(one for one, passed in backends.items() if passed and all(passed)),
    )
