"""Can the keys of those who vouch for backends be had?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import aiohttp
import msgspec

from bot.doctor.finding import Finding, error, ok
from bot.domain import words

if TYPE_CHECKING:
    from bot.doctor.patient import Patient

TIMEOUT = aiohttp.ClientTimeout(total=10)


async def all_of(patient: Patient) -> list[Finding]:
    """Fetch the keys of every issuer."""
    found = []
    for issuer in patient.settings.oidc_issuers:
        try:
            async with patient.http.get(issuer.keys_url, timeout=TIMEOUT, allow_redirects=False) as answer:
                status, body = str(answer.status), await answer.read()
            count = len(msgspec.json.decode(body)["keys"]) if status == "200" else 0
        except (aiohttp.ClientError, TimeoutError, OSError) as problem:
            status, count = f"{type(problem).__name__} {problem}".strip(), 0
        except (msgspec.DecodeError, KeyError, TypeError):
            count = 0
        if count:
            found.append(ok("issuer", f"{issuer.issuer} has {words.plural(count, 'key')}"))
        else:
            todo = "check OIDC_ISSUERS and the way out to it; reports are refused with 503 meanwhile"
            found.append(error("issuer", f"no keys at {issuer.keys_url}: {status}", todo))
    return found
