"""Statements of dispatches, jobs, re-runs, runs and commands."""

from __future__ import annotations
