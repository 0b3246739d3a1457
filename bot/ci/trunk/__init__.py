"""A repository's own CI, commit by job, with the backends' results on the same axis."""

from __future__ import annotations
