"""Results of runs that are not over."""

from __future__ import annotations
