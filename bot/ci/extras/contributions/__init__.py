"""Contributions of outside people: how many are merged, and how long they wait."""

from __future__ import annotations
