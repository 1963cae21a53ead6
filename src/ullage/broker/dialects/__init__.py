"""Every API that Ullage can ask, as a row: how a request is put, and how its answer is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.broker.dialects import anthropic, ollama, openai_chat, openai_responses

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ullage.broker.dialect import Dialect

DIALECTS: Mapping[str, Dialect] = {
    module.API: module.DIALECT for module in (openai_chat, openai_responses, anthropic, ollama)
}
"""By the names of `wire`: openai.chat, openai.responses, anthropic.messages, ollama.chat."""

__all__ = ["DIALECTS"]
