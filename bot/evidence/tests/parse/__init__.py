"""Reading reports of tests: all that the parser child imports of this capability, and nothing else."""

from __future__ import annotations
