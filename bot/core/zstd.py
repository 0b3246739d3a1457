"""Zstandard: Python's own module, or the same one for a Python before 3.14."""

from __future__ import annotations

import sys

__all__ = ["zstd"]


if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd
