"""Is an acknowledged delivery ever lost? `ootbot serve` under load, killed at random moments, started again each time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field

import pytest

from tests.harness import SECRET, UPSTREAM, sign
from tests.process import Process, options_for, until

CONNECTIONS = 6
ISSUES = 40  # every delivery is about one of them: records are merged while others are killed
