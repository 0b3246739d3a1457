"""Lists that CI is planned with: how long tests take, by file, class and test, and reruns of disabled tests."""

from __future__ import annotations
