"""The dialects of all APIs that Ullage can use, one row each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.broker.dialects import anthropic, ollama, openai_chat, openai_responses

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ullage.broker.dialect import Dialect
    from ullage.target import ApiName

DIALECTS: Mapping[ApiName, Dialect] = {
    module.API: module.DIALECT for module in (openai_chat, openai_responses, anthropic, ollama)
}
"""The dialects by their names in `wire`: openai.chat, openai.responses, anthropic.messages, ollama.chat."""

__all__ = ["DIALECTS"]
