"""The loop with the out-of-tree backends."""

from __future__ import annotations
