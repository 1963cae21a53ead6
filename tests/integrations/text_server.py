"""The strict server for agents whose observations are user messages, with calls or without."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from tests.player import playing
from tests.strict_answers import Answer, PageCall
from tests.strict_rules import Reading, need
from tests.strict_server import DONE, STEPS, StrictServer, read_page

if TYPE_CHECKING:
    from collections.abc import Iterator


class TextServer(StrictServer):
    """It asks for a page in a text, or with a call if `calls`, and wants the page in the last user message.

    The message before it must be the action that asked for the page.
    """

    def __init__(self, *, action: str, end: str = DONE, calls: bool = False, steps: int = STEPS) -> None:
        super().__init__(steps=steps)
        self._action, self._end, self._calls = action, end, calls

    def _read(self, api: str, body: dict[str, Any]) -> Reading:
        reading = super()._read(api, body)
        if self._step and self._step <= self._steps:
            *_, action, observation = body["messages"]
            page = self._step - 1
            need((action["role"], observation["role"]) == ("assistant", "user"), "no action before the page")
            need(f"{page}" in str(action["content"]), f"the action that asked for page {page} is gone")
            need(f"Page {page} " in str(observation["content"]), f"page {page} is not there")
        return reading

    def _next(self, _: str, body: dict[str, Any], tokens: int) -> Answer:
        number, model = len(self.bodies), body["model"]
        if self._step == self._steps:
            self._finished = True
            return Answer(number, model, self._end, tokens=tokens)
        page = self._step
        self._step += 1
        calls = [PageCall(f"call_{page:04}", page)] if self._calls else []
        return Answer(number, model, self._action.format(page=page), calls, tokens=tokens)


@contextlib.contextmanager
def text_server(**options: Any) -> Iterator[TextServer]:
    """A running server; `url` is the address without the path `/v1`."""
    server = TextServer(**options)
    with playing(server.answer) as player:
        server.url = player.url
        yield server


def page_of(command: str) -> str:
    """The output of the command `read_page N`."""
    return read_page(int(command.rsplit(maxsplit=1)[-1]))
