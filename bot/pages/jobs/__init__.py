"""Pages of runs, jobs and artifacts, and what they share."""

from __future__ import annotations
