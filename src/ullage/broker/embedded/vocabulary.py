"""The tokenizer in a GGUF file, used without the model runtime.

The file has the vocabulary and the merges. For the first step, which cuts a text into words, it has only a
name; `CUTS` has the rules for each name.
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

# the file's `tokenizer.ggml.pre` → the pre-tokenizers of a tokenizer.json that cut in the same way
CUTS: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    "smollm": ({"type": "Digits", "individual_digits": True}, _WORDS),
    "gpt-2": (_WORDS,),
}
_CONTROL = 3


class GgufTokenizer:
    """Counts and encodes texts with the vocabulary of a GGUF file."""

    def __init__(self, name: str, encoder: Any) -> None:
        self.name = name
        self._encoder = encoder

    def __repr__(self) -> str:
        return f"GgufTokenizer({self.name!r})"

    def encode(self, text: str) -> list[int]:
        """Returns the token ids of a text; special tokens in the text are read as plain letters."""
        ids: list[int] = self._encoder.encode_ordinary(sendable(text))
        return ids

    def count(self, text: str) -> int:
        """Returns the number of tokens of a text; special tokens in the text are read as plain letters."""
        return len(self.encode(text))

    def count_in_chat(self, text: str) -> int:
        """Returns the tokens that a text adds inside a ChatML message: after `user` and a line end.

        White space at the text's beginning merges with that line end, and the runtime reads special tokens in
        a text as special tokens.
        """
        return len(self._encoder.encode_with_special("\n" + sendable(text))) - 1


class ChatTokenizer:
    """A tokenizer for `register_tokenizer` that counts each text as a part of a chat message."""

    exact = True
    """True because it is the model's own tokenizer, so its counts are not estimates."""

    def __init__(self, tokenizer: GgufTokenizer) -> None:
        self.name = f"{tokenizer.name} in chat"
        self.count = tokenizer.count_in_chat
        self.encode = tokenizer.encode


def sendable(text: str) -> str:
    """Returns a text that JSON can hold: lone surrogates are replaced."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@functools.lru_cache(4)
def tokenizer_of(path: Path) -> GgufTokenizer:
    """Returns the tokenizer in a GGUF file; raises LocalModelError if its kind is unknown."""
    import orjson  # noqa: PLC0415 - heavy, like splintr; loaded for the first count
    import splintr  # noqa: PLC0415

    info = metadata(path)
    kind, pre = info.get("tokenizer.ggml.model"), str(info.get("tokenizer.ggml.pre"))
    if kind != "gpt2" or pre not in CUTS:
        raise LocalModelError(
            f"{path} has a tokenizer of kind {kind}/{pre}, which only its runtime can count: "
            "use EmbeddedProvider.count"
        )
    encoder = splintr.from_json_bytes(orjson.dumps(_document(info, CUTS[pre])))
    return GgufTokenizer(str(info.get("general.basename") or path.stem), encoder)


def _document(info: Mapping[str, Any], cuts: tuple[Mapping[str, Any], ...]) -> dict[str, Any]:
    """Returns a tokenizer.json with the file's content."""
    tokens = info["tokenizer.ggml.tokens"]
    kinds = info["tokenizer.ggml.token_type"]
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
            "merges": [merge.split(" ") for merge in info["tokenizer.ggml.merges"]],
        },
    }
