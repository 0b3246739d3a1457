"""What jobs leave behind."""

from __future__ import annotations
