"""Runs llama.cpp in this process: a loaded model, and blocking calls to it.

Only this module uses xllamacpp.
"""

from __future__ import annotations

import importlib
import importlib.util
import secrets
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ullage.broker.endpoint import Endpoint, Key
from ullage.errors import LocalModelError, MissingExtra
from ullage.extras import require

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

INSTALL = "pip install 'ullage[local]'"
"""The command that installs the runtime, for messages that go on after it."""
BATCH = 64
"""Prompt tokens in a batch; stopping an answer takes one batch at most."""
_PATIENCE = 30.0
"""Most seconds for a call to the loopback port; a count takes milliseconds."""


def is_installed() -> bool:
    """Returns True if the runtime is installed, without loading it."""
    return importlib.util.find_spec("xllamacpp") is not None


def check_installed() -> None:
    """Raises LocalModelError, with the command that installs it, if the runtime is missing."""
    try:
        require("local", "xllamacpp")
    except MissingExtra as missing:
        raise LocalModelError(str(missing)) from missing


class Runtime:
    """A loaded model. Its methods block; `chat` is for one caller at a time, the others for any thread.

    The runtime always opens a port on the loopback, which is used for counting. It requires a random key,
    which is never shown.
    """

    def __init__(self, path: Path, *, model: str, window: int, threads: int) -> None:
        xllamacpp: Any = importlib.import_module("xllamacpp")  # 34 MB; it ships no types

        self._key = Key(secrets.token_urlsafe(32), "the embedded model's own port")
        given = xllamacpp.CommonParams()
        given.model.path = str(path)
        given.model_alias = {model}
        given.n_ctx, given.n_parallel = window, 1
        given.n_batch = given.n_ubatch = BATCH
        given.cpuparams.n_threads = given.cpuparams_batch.n_threads = threads
        given.n_threads_http = 2
        given.cache_ram_mib = 0  # the slot's own cache is used; this would be a second copy
        given.prefill_assistant = False  # an answer in the history is complete
        given.ui = given.endpoint_slots = False
        given.endpoint_metrics = True  # the only question that waits for the task loop and costs no tokens
        given.verbosity = 0
        given.api_keys = [self._key.reveal()]
        try:
            self._server = xllamacpp.Server(given)
        except (RuntimeError, ValueError) as error:
            raise LocalModelError(f"{path} does not load: {error}. Give the path of a GGUF model") from error
        # The constructor returns before the task loop starts. A model that is freed before that waits for its
        # loop for ever, and the whole process with it, because the destructor holds the interpreter's lock.
        self._server.handle_metrics()
        address = urlsplit(self._server.listening_address)
        self._host, self._port = address.hostname or "127.0.0.1", address.port or 0
        self.context = self._context() or window
        """The tokens of prompt and answer together, as the runtime rounded them."""

    def endpoint(self, model: str) -> Endpoint:
        """Returns the loopback port as an endpoint, with its key; it answers one request at a time."""
        return Endpoint(
            url=f"http://{self._host}:{self._port}/v1",
            model=model,
            key=self._key,
            window=self.context - 1,
            local=True,
        )

    def chat(self, body: Mapping[str, Any], tell: Callable[[dict[str, Any]], bool]) -> None:
        """Streams an answer: every chunk goes to `tell`, which returns True to stop the answer."""
        self._server.handle_chat_completions(dict(body), tell)

    def count(self, body: Mapping[str, Any]) -> int | None:
        """Returns the tokens of a whole request; None if the runtime does not answer."""
        answer = self._call("POST", "/v1/chat/completions/input_tokens", body)
        tokens = answer.get("input_tokens")
        return tokens if isinstance(tokens, int) else None

    def _context(self) -> int | None:
        settings = self._call("GET", "/props", None).get("default_generation_settings")
        size = settings.get("n_ctx") if isinstance(settings, dict) else None
        return size if isinstance(size, int) else None

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        """Calls our own port; returns an empty object if there is no answer."""
        from http.client import HTTPConnection, HTTPException  # noqa: PLC0415 - only needed to count

        import orjson  # noqa: PLC0415

        headers = {"Authorization": f"Bearer {self._key.reveal()}", "Content-Type": "application/json"}
        connection = HTTPConnection(self._host, self._port, timeout=_PATIENCE)
        try:
            connection.request(method, path, None if body is None else orjson.dumps(body), headers)
            answer = orjson.loads(connection.getresponse().read())
        except (OSError, HTTPException, ValueError, TypeError):
            return {}
        finally:
            connection.close()
        return answer if isinstance(answer, dict) else {}
