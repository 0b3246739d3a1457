"""The task queue: one table in the database."""

from __future__ import annotations
