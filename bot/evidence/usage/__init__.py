"""What the machine did while a job ran: usage logs read, summed up and kept."""

from __future__ import annotations
