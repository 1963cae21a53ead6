"""llama.cpp in this process: a loaded model, and the blocking calls to it.

Only this module knows xllamacpp.
"""

from __future__ import annotations

import importlib
import importlib.util
import secrets
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ullage.broker.endpoint import Key
from ullage.errors import LocalModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

INSTALL = "pip install 'ullage[local]'"
"""The command that brings the runtime."""
BATCH = 64
"""Prompt tokens at a time: whoever stops an answer waits for one batch at most."""
_PATIENCE = 30.0
"""Seconds that the loopback port may take; a count takes milliseconds."""


def is_installed() -> bool:
    """Whether the runtime is there; it is not loaded for that."""
    return importlib.util.find_spec("xllamacpp") is not None


def check_installed() -> None:
    """Raises LocalModelError, with the command that mends it, where the runtime is missing."""
    if not is_installed():
        raise LocalModelError(f"the runtime of the embedded model is missing. Install it with: {INSTALL}")


class Runtime:
    """A loaded model. Its methods block; `chat` is for one caller at a time, the others for any thread.

    The runtime always opens a port on the loopback, for counting: it answers to a random key only, which is
    never shown.
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
        given.cache_ram_mib = 0  # the slot's own cache is the one that is reused; this would be another copy
        given.prefill_assistant = False  # an answer that stands in the history is over
        given.ui = given.endpoint_slots = False
        given.verbosity = 0
        given.api_keys = [self._key.reveal()]
        try:
            self._server = xllamacpp.Server(given)
        except (RuntimeError, ValueError) as error:
            raise LocalModelError(f"{path} does not load: {error}. Give the path of a GGUF model") from error
        address = urlsplit(self._server.listening_address)
        self._host, self._port = address.hostname or "127.0.0.1", address.port or 0
        self.context = self._context() or window
        """The tokens of prompt and answer together, as the runtime rounded them."""

    def chat(self, body: Mapping[str, Any], tell: Callable[[dict[str, Any]], bool]) -> None:
        """Streams an answer: every chunk goes to `tell`, which stops the answer by giving True."""
        self._server.handle_chat_completions(dict(body), tell)

    def count(self, body: Mapping[str, Any]) -> int | None:
        """The tokens of a whole request."""
        told = self._call("POST", "/v1/chat/completions/input_tokens", body)
        tokens = told.get("input_tokens")
        return tokens if isinstance(tokens, int) else None

    def _context(self) -> int | None:
        settings = self._call("GET", "/props", None).get("default_generation_settings")
        size = settings.get("n_ctx") if isinstance(settings, dict) else None
        return size if isinstance(size, int) else None

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        """A call to our own port; an empty answer where it gives none."""
        from http.client import HTTPConnection, HTTPException  # noqa: PLC0415 - only where one counts

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
