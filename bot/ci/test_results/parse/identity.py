"""What a test is known by: a digest of where it stands, and a name that is the same on every device."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

DIGEST = 16  # bytes
SHOWN = 16  # hex digits of it, in addresses
DEVICE = "{device}"
DEVICES = frozenset(
    ["cpu", "cuda", "xpu", "mps", "rocm", "hip", "npu", "hpu", "mlu", "musa", "gcu", "meta", "privateuse1"]
)  # more come from the allowlist
# words of a name: between separators, and between lower and upper case
_WORD = re.compile(r"[A-Z]+[0-9]*(?![a-z])|[A-Z]?[a-z]+[0-9]*|[0-9]+|[^A-Za-z0-9]+")


def digest(file: str, suite: str, name: str) -> bytes:
    """Return what identifies a test within its repository."""
    return hashlib.sha256(f"{file}\0{suite}\0{name}".encode("utf-8", "replace")).digest()[:DIGEST]


def shown_digest(of: bytes) -> str:
    """Return a digest as it stands in addresses."""
    return of.hex()[:SHOWN]


def canonical(file: str, suite: str, name: str, *, devices: Iterable[str] = DEVICES) -> int:
    """Return a signed 64-bit number that is the same for the same test on every device.

    `name` is the declared name where a report has it; `devices` are lower-case words.
    """
    words = frozenset(devices)
    text = f"{file}\0{without_device(suite, words)}\0{without_device(name, words)}"
    found = hashlib.sha256(text.encode("utf-8", "replace")).digest()[:8]
    return int.from_bytes(found, "big", signed=True)


def without_device(text: str, devices: frozenset[str]) -> str:
    """Return a name with its device words replaced."""
    lowered = text.lower()
    if not any(device in lowered for device in devices):
        return text
    return _WORD.sub(lambda found: DEVICE if found[0].lower() in devices else found[0], text)
