"""Ollama's chat API."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.wire.api import Api
from ullage.wire.ollama_reader import read
from ullage.wire.ollama_writer import write

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ullage.wire.api import Sum

USAGE: Mapping[str, Sum] = {
    "prompt": (("prompt_eval_count",),),
    "completion": (("eval_count",),),
}
OPTIONS = {
    "output limit": ("options.num_predict",),
    "temperature": ("options.temperature",),
    "nucleus": ("options.top_p",),
    "stop": ("options.stop",),
    "stream": ("stream",),
}

APIS = (Api(name="ollama.chat", read=read, write=write, usage=USAGE, options=OPTIONS),)
