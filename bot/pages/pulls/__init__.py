"""Pages of pull requests and commits."""

from __future__ import annotations
