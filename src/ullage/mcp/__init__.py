"""MCP servers, and the tools that they offer to the model."""

from __future__ import annotations

from ullage.mcp.servers import MAX_RESULT, Connected, Servers
from ullage.mcp.spec import ServerSpec, spec_for, spec_of
from ullage.mcp.tools import Offered, exposed_name, schema_tokens

__all__ = [
    "MAX_RESULT",
    "Connected",
    "Offered",
    "ServerSpec",
    "Servers",
    "exposed_name",
    "schema_tokens",
    "spec_for",
    "spec_of",
]
