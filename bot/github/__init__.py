"""Calls to GitHub: App identity, tokens, rate limits, one client per repository and need."""

from __future__ import annotations
