"""What we hold to be true of jobs: runs and their jobs, whose they are, and the history of a branch."""

from __future__ import annotations
