"""The tests and jobs that a repository's CI may skip, as its issues say."""

from __future__ import annotations
