"""Statements of reports: keys, quotas, commits that are not verified yet."""

from __future__ import annotations
