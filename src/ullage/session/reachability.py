"""Finds out if the server of a model on this machine or network is there, before the first question."""

from __future__ import annotations

import asyncio
import ipaddress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ullage.session.endpoint import endpoint_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ullage.config import ModelSettings

PATIENCE = 5.0
"""Seconds that a server has to accept a connection."""
PORTS: Mapping[str, int] = {"http": 80, "https": 443}


async def is_reachable(model: ModelSettings, environ: Mapping[str, str]) -> bool | None:
    """Returns True if the model's server accepts a connection, and False if it does not.

    Returns None for a model in this process and for a server elsewhere: it may only be reachable by a proxy,
    and nothing is sent to a provider before a question.
    """
    if model.runs_here:
        return None
    address = urlsplit(endpoint_of(model, environ).url)
    host, port = address.hostname or "", address.port or PORTS.get(address.scheme, 0)
    if not _is_near(host):
        return None
    try:
        async with asyncio.timeout(PATIENCE):
            _, writer = await asyncio.open_connection(host, port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


def address_of(model: ModelSettings, environ: Mapping[str, str]) -> str:
    """Returns the host and the port of a model's server, without a path and credentials."""
    address = urlsplit(endpoint_of(model, environ).url)
    return f"{address.scheme}://{address.netloc.rpartition('@')[2]}"


def _is_near(host: str) -> bool:
    """Returns True for this machine and for the addresses of private networks."""
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return host == "localhost" or host.endswith((".localhost", ".local"))
