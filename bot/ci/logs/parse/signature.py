"""The signature of a failure: what stays the same when it happens again elsewhere."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import re2

if TYPE_CHECKING:
    from collections.abc import Sequence

WORKSPACE = re2.compile(r"(?:/home/[^\s:]*?/_?work/[^\s/:]+/[^\s/:]+|/__w/[^\s/:]+/[^\s/:]+)")
TEMPORARY = re2.compile(r"/tmp/[^\s:;,'\"`)\]}>]*")  # noqa: S108 - looked for, not used
HEX = re2.compile(r"(?:0[xX])?[0-9a-fA-F]{8,}")
DIGITS = re2.compile(r"[0-9]{4,}")
SPACE = re2.compile(r"\s+")


def normalized(capture: str) -> str:
    """Return a capture without what differs from run to run: paths of the machine, addresses, hashes, long numbers."""
    text = TEMPORARY.sub("<path>", WORKSPACE.sub("<path>", capture))
    text = HEX.sub(lambda found: "<n>" if found.group().isdigit() else "<hex>", text)
    return str(SPACE.sub(" ", DIGITS.sub("<n>", text)).strip())


def signature(rule: str, captures: Sequence[str]) -> str:
    """Return the name of a failure: equal where it is likely the same one."""
    parts = [rule, *(normalized(capture) for capture in captures)]
    return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()


def title(rule: str, captures: Sequence[str]) -> str:
    """Return what people call a failure: its rule and what was captured, normalized."""
    return f"{rule}: {' '.join(normalized(capture) for capture in captures)}"[:300]
