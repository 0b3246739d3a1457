"""What the operator uses: doctor, setup, health, administration."""

from __future__ import annotations
