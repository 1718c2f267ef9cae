"""The `openai` clients that stand-ins call a policy's endpoint with: one per event loop, shared by all their models.

The SDK makes a new model object for every turn of an agent that names its model by text, so a client must outlive it. A
connection belongs to the event loop that it was opened in, so a client must not outlive that.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import openai
from openai import AsyncOpenAI, DefaultAsyncHttpxClient

from leyden.types import Endpoint

HTTP_CLIENT: Any = getattr(openai, "DefaultAsyncHttpx2Client", DefaultAsyncHttpxClient)
"""The kind of HTTP client that the installed `openai` uses. The one that it makes by itself closes its connections when it
is forgotten, in whatever event loop then runs, which is an error if theirs has ended."""

Key = tuple[str, str, str]

_clients: dict[asyncio.AbstractEventLoop | None, dict[Key, AsyncOpenAI]] = {}
_lock = threading.Lock()


class Clients:
    """The clients of one endpoint, with the time-out and the retries of the client that the agent's own model has."""

    def __init__(self, own: object, endpoint: Endpoint) -> None:
        client = getattr(own, "_client", None)
        self._options: dict[str, Any] = (
            {"timeout": client.timeout, "max_retries": client.max_retries} if isinstance(client, AsyncOpenAI) else {}
        )
        self._key = (endpoint.base_url, endpoint.api_key, repr(self._options))

    def current(self) -> AsyncOpenAI:
        """The client of the running event loop."""
        loop = _running()
        with _lock:
            if loop not in _clients:
                for old in [other for other in _clients if other is not None and other.is_closed()]:
                    del _clients[old]
            made = _clients.setdefault(loop, {})
            if self._key not in made:
                base_url, api_key, _ = self._key
                http = HTTP_CLIENT()
                made[self._key] = AsyncOpenAI(base_url=base_url, api_key=api_key, http_client=http, **self._options)
            return made[self._key]


async def close() -> None:
    """Close the connections of the running event loop; the next call opens new ones."""
    with _lock:
        made = _clients.pop(_running(), {})
    for client in made.values():
        await client.close()


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
