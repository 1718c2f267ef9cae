"""Whether the endpoints of policies are there, asked before rollouts are spent on one that is down."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Mapping

from leyden.types import Endpoint, Policy

PROBE_S = 5.0


async def unreachable(policies: Mapping[str, Policy]) -> dict[str, str]:
    """Name → what is wrong, of every policy whose endpoint nobody listens at. Any answer of a server, errors too, will do."""
    endpoints = {name: policy for name, policy in policies.items() if isinstance(policy, Endpoint)}
    found = await asyncio.gather(*(asyncio.to_thread(probe, one.base_url) for one in endpoints.values()))
    return {name: f"{endpoints[name].base_url}: {why}" for name, why in zip(endpoints, found, strict=True) if why}


def probe(base_url: str) -> str | None:
    """Why nothing can be sent to a base URL, or None. A server that is slow, or asks for a key, is there."""
    import urllib.error
    import urllib.request

    try:
        with urllib.request.urlopen(f"{base_url.rstrip('/')}/models", timeout=PROBE_S):
            return None
    except urllib.error.HTTPError:
        return None
    except urllib.error.URLError as error:
        reason = error.reason
        if isinstance(reason, ConnectionRefusedError):
            return "nothing listens there"
        if isinstance(reason, socket.gaierror):
            return f"there is no such host ({reason.strerror})"
        return None if isinstance(reason, (OSError, ssl.SSLError)) else str(reason)
    except ValueError as error:
        return str(error)
    except Exception:  # an answer that is no HTTP, a time-out: somebody is there
        return None
