"""ootbot: one self-hosted GitHub App between a project and its out-of-tree backends."""

from __future__ import annotations

__version__ = "0.1.0"
