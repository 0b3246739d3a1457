"""Job logs: cleaned, masked, kept, classified by rules, searched."""

from __future__ import annotations
