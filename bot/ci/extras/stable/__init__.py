"""Stable commits: the moves of a branch's last good commit."""

from __future__ import annotations
