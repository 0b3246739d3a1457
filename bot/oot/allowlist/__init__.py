"""Which backends take part, at which level, on which terms."""

from __future__ import annotations
