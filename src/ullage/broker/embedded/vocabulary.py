"""The tokenizer that a GGUF file carries, at work without the model runtime.

Vocabulary and merges stand in the file; how a text is first cut into words is told by a name only, and
the cuts of that name are a row of `CUTS`.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from ullage.broker.embedded.gguf import metadata
from ullage.errors import LocalModelError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_WORDS = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}

# the file's `tokenizer.ggml.pre` → the pre-tokenizers of a tokenizer.json that cut the same
CUTS: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    "smollm": ({"type": "Digits", "individual_digits": True}, _WORDS),
    "gpt-2": (_WORDS,),
}
_CONTROL = 3


class GgufTokenizer:
    """The tokens of a text by the vocabulary of a GGUF file."""

    def __init__(self, name: str, encoder: Any) -> None:
        self.name = name
        self._encoder = encoder

    def __repr__(self) -> str:
        return f"GgufTokenizer({self.name!r})"

    def encode(self, text: str) -> list[int]:
        """The token ids of a text in which special tokens, spelled out, are plain letters."""
        ids: list[int] = self._encoder.encode_ordinary(sendable(text))
        return ids

    def count(self, text: str) -> int:
        """The number of those tokens."""
        return len(self.encode(text))

    def count_in_chat(self, text: str) -> int:
        """The tokens that a text adds between the frame of a ChatML message: `user`, a line end, the text.

        White space at its beginning merges with that line end, and the runtime takes special tokens that a
        text spells out for what they are.
        """
        return len(self._encoder.encode_with_special("\n" + sendable(text))) - 1


class ChatTokenizer:
    """A tokenizer for `register_tokenizer`: counts each text as the message that it is sent as."""

    exact = True
    """It is the model's own, so that what it counts is no estimate."""

    def __init__(self, tokenizer: GgufTokenizer) -> None:
        self.name = f"{tokenizer.name} in chat"
        self.count = tokenizer.count_in_chat
        self.encode = tokenizer.encode


def sendable(text: str) -> str:
    """A text as JSON can carry it: lone surrogates replaced."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@functools.lru_cache(4)
def tokenizer_of(path: Path) -> GgufTokenizer:
    """The tokenizer in a GGUF file; LocalModelError where its kind is not known here."""
    import orjson  # noqa: PLC0415 - with splintr, the one heavy part; paid where a text is counted
    import splintr  # noqa: PLC0415

    told = metadata(path)
    kind, pre = told.get("tokenizer.ggml.model"), str(told.get("tokenizer.ggml.pre"))
    if kind != "gpt2" or pre not in CUTS:
        raise LocalModelError(
            f"{path} has a tokenizer of kind {kind}/{pre}, which only its runtime can count: "
            "use EmbeddedProvider.count"
        )
    encoder = splintr.from_json_bytes(orjson.dumps(_document(told, CUTS[pre])))
    return GgufTokenizer(str(told.get("general.basename") or path.stem), encoder)


def _document(told: Mapping[str, Any], cuts: tuple[Mapping[str, Any], ...]) -> dict[str, Any]:
    """The tokenizer.json that says what the file says."""
    tokens = told["tokenizer.ggml.tokens"]
    kinds = told["tokenizer.ggml.token_type"]
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "added_tokens": [
            {"id": number, "content": token, **plain}
            for number, (token, kind) in enumerate(zip(tokens, kinds, strict=True))
            if kind == _CONTROL
        ],
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": list(cuts)},
        "decoder": _WORDS,
        "model": {
            "type": "BPE",
            "vocab": {token: number for number, token in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in told["tokenizer.ggml.merges"]],
        },
    }
