"""Numbers of jobs that ran elsewhere than on GitHub: made of their ids there, which are texts.

They are negative, as GitHub's never are, and below those of uploads, which are negative, too.
"""

from __future__ import annotations

import hashlib

LARGEST = -(2**52)
KEPT_BITS = 52  # of the digest: readers of JSON take whole numbers of up to 53 bits


def make_number(source: str, text: str) -> int:
    """Return the number of an id elsewhere."""
    digest = hashlib.sha256(f"{source}\0{text}".encode("utf-8", "replace")).digest()
    return LARGEST - (int.from_bytes(digest[:8]) >> 64 - KEPT_BITS)


def is_elsewhere(number: int) -> bool:
    """Whether a number is one of a job that ran elsewhere."""
    return number <= LARGEST
