"""Verdicts on backends, head by head."""

from __future__ import annotations
