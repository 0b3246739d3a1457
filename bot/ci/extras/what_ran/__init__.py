"""What a run tested, file by file, and what it left out."""

from __future__ import annotations
