"""Collecting what jobs leave behind: artifacts and logs, downloaded, kept, and parsed in a child process."""

from __future__ import annotations
