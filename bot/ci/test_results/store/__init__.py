"""What is stored of test results, and the statements that read and write it."""

from __future__ import annotations
