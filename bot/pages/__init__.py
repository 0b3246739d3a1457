"""Pages and their JSON: a folder for each area, highest of what shows; everything they show lies below."""

from __future__ import annotations
