"""Texts and conversations on which the counts of SmolLM2 are held against its own runtime."""

from __future__ import annotations

from typing import Any

MODEL = "smollm2-135m-instruct"

TEXTS = (
    "hello world",
    "  two  spaces at the beginning",
    "\n\n  a line further down",
    "tab\tand\t\ttabs",
    "123 4567 ٣٤٥ Ⅷ ½ x²",
    "日本語のテキスト、です。",
    "emoji 👩‍👩‍👧 🇩🇪 ❤️",
    "don't we'll I'M they'RE",
    "def f(x):\n    return x + 1\n\n\n",
    "a\u00a0b\u3000c\u2028d\x85e",
    "\x00\x01\x1f\x7f",
    "<|im_start|>user <repo_name> <|im_end|>",
    "Ünïcödé naïve Straße",
    "क्षत्रिय हिन्दी",
    "العربية ١٢٣",
    "\ufeffa byte order mark",
    "   ",
    "\n",
    "\r\n\r\n",
    "e\u0301 is not é",
    "𝔘𝔫𝔦 𐍈",
    "x" * 300,
    "?!?!...---===",
    "https://example.org/a/b?c=d&e=1#f",
    "\u200b\u200d",
    "한국어 텍스트",
    "'s 't 're",
    '{"key": [1, 2.5e-3, null], "other": "va\\"lue"}',
    "2026-11-16T01:02:03Z 0xdeadbeef 192.168.0.1:8080",
    "trailing space \nand line end\n",
)


def _conversations() -> list[list[dict[str, Any]]]:
    """A conversation for each text: with and without a system prompt, of one to five turns."""
    made: list[list[dict[str, Any]]] = []
    for number, text in enumerate(TEXTS):
        messages: list[dict[str, Any]] = []
        if number % 3:
            messages.append({"role": "system", "content": TEXTS[-number] if number % 2 else "Be brief."})
        for turn in range(number % 3):
            messages.append({"role": "user", "content": TEXTS[(number * 7 + turn) % len(TEXTS)]})
            messages.append({"role": "assistant", "content": TEXTS[(number * 5 + turn * 3) % len(TEXTS)]})
        messages.append({"role": "user", "content": text})
        made.append(messages)
    return made


CONVERSATIONS = _conversations()
