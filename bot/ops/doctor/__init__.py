"""The checks of `ootbot doctor`, each finding with its next step."""

from __future__ import annotations
