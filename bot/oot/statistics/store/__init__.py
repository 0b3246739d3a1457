"""Statements of statistics: rows that count, and daily sums."""

from __future__ import annotations
