"""Pages and JSON of the grid, of a branch over days, of its jobs and of its runners."""

from __future__ import annotations
