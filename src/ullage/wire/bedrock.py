"""Amazon Bedrock's Converse API."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.wire.api import Api
from ullage.wire.bedrock_reader import read
from ullage.wire.bedrock_writer import write

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ullage.wire.api import Sum

CONVERSE_READ = ("cacheReadInputTokens", "cacheReadInputTokenCount")
CONVERSE_WRITE = ("cacheWriteInputTokens", "cacheWriteInputTokenCount")
CONVERSE: Mapping[str, Sum] = {
    "prompt": (("inputTokens",), CONVERSE_READ, CONVERSE_WRITE),
    "completion": (("outputTokens",),),
    "cached_read": (CONVERSE_READ,),
    "cache_write": (CONVERSE_WRITE,),
}
OPTIONS = {
    "output limit": ("inferenceConfig.maxTokens",),
    "temperature": ("inferenceConfig.temperature",),
    "nucleus": ("inferenceConfig.topP",),
    "stop": ("inferenceConfig.stopSequences",),
}
HELD = ("promptVariables",)

APIS = (Api(name="bedrock.converse", read=read, write=write, usage=CONVERSE, options=OPTIONS, held=HELD),)
