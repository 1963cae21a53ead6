"""The rows of `ullage model list`: the embedded model, configured and chosen models, and providers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ullage.broker.embedded_info import EMBEDDED
from ullage.errors import ConfigurationError
from ullage.session.model_choice import choose_model
from ullage.session.preferences import CHOSEN_MODEL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ullage.config.settings import ModelSettings, Settings
    from ullage.store.settings import PreferenceStore

CHOSEN = "chosen with `ullage model use` or :model"
"""The origin of a saved choice."""


class Answering(NamedTuple):
    """The model that answers, and the origin of the choice."""

    name: str
    origin: str
    notice: str
    """A message for the user if the saved choice cannot be found."""


def find_answering(settings: Settings, preferences: PreferenceStore | None) -> Answering:
    """Returns the model that answers; `preferences` is None if there is no store yet."""
    configured = settings.source("model")
    if preferences is None:
        return Answering(settings.default_model, configured, "")
    choice = choose_model(settings, preferences)
    is_saved = not choice.notice and bool(CHOSEN_MODEL.get(preferences))
    return Answering(choice.model.name, CHOSEN if is_saved else configured, choice.notice)


def list_models(settings: Settings, answering: Answering, environ: Mapping[str, str]) -> list[dict[str, Any]]:
    """Returns a row for each model and provider, in the order of the list."""
    rows = [_make_embedded_row()]
    rows += [_model_row(model, settings, environ, "configured") for model in settings.models.values()]
    names = {row["name"] for row in rows}
    if answering.name not in names:
        rows.append(_model_row(settings.model(answering.name), settings, environ, "chosen"))
        names.add(answering.name)
    rows += [row for row in _provider_rows(environ) if row["name"] not in names]
    for row in rows:
        row["used"] = row["name"] == answering.name
        row["origin"] = answering.origin if row["used"] else None
    return rows


def row_text(row: Mapping[str, Any]) -> str:
    """Returns a row as a line; `*` marks the model that answers."""
    if row["used"]:
        return f"* {row['name']:<24}  {row['state']} ({row['origin']})"
    return f"  {row['name']:<24}  {row['state']}"


def _make_embedded_row() -> dict[str, Any]:
    from ullage.broker.embedded import runtime, weights  # noqa: PLC0415 - only a list needs them

    wanted, path = weights.SMOLLM2, weights.find()
    state = f"{wanted.model}, {wanted.size / 1e6:.0f} MB, "
    state += f"missing: {weights.GET}" if path is None else "present"
    if not runtime.is_installed():
        state += f"; its runtime is missing: {runtime.INSTALL}"
    is_ready = path is not None and runtime.is_installed()
    return _row(EMBEDDED, EMBEDDED, state, is_ready=is_ready, path=None if path is None else str(path))


def _model_row(
    model: ModelSettings, settings: Settings, environ: Mapping[str, str], kind: str
) -> dict[str, Any]:
    """Returns the row of a configured model, or of a chosen one that is not configured."""
    if model.runs_here:
        return _file_row(model, settings, kind)
    from ullage.session.endpoint import endpoint_of  # noqa: PLC0415 - only a remote model needs it

    try:
        endpoint = endpoint_of(model, environ)
    except ConfigurationError as error:  # such as a missing key; the message names its variable
        return _row(model.name, kind, _join_facts(str(error), *_facts(model, settings)), is_ready=False)
    key = "no key" if endpoint.key is None else f"key in {endpoint.key.source}"
    place = f"{endpoint.model} at {endpoint.url}"
    return _row(model.name, kind, _join_facts(place, key, *_facts(model, settings)), is_ready=True)


def _file_row(model: ModelSettings, settings: Settings, kind: str) -> dict[str, Any]:
    """Returns the row of a GGUF file, or of a name of your own for the embedded model."""
    if model.spec == EMBEDDED:
        row = _make_embedded_row()
        state = _join_facts(row["state"], *_facts(model, settings))
        return _row(model.name, kind, state, is_ready=row["ready"], path=row["path"])
    path = Path(model.spec).expanduser()
    is_there = path.is_file()
    state = (
        f"{path.stat().st_size / 1e6:,.0f} MB, present" if is_there else f"{path}: the file does not exist"
    )
    return _row(
        model.name, kind, _join_facts(state, *_facts(model, settings)), is_ready=is_there, path=str(path)
    )


def _facts(model: ModelSettings, settings: Settings) -> tuple[str, ...]:
    """Returns the configured window, and the categories of questions that the model answers."""
    window = () if model.window is None else (f"window {model.window:,}",)
    routes = settings.routing.models.items()
    return (*window, *(f"@{category}" for category, name in routes if name == model.name))


def _provider_rows(environ: Mapping[str, str]) -> list[dict[str, Any]]:
    from ullage.broker.registry import PROVIDERS  # noqa: PLC0415 - only a list needs them

    return [
        _row(
            name,
            "provider",
            f"{each.url}, {_key_state(each.variable, environ)}",
            is_ready=each.variable is None or bool(environ.get(each.variable)),
        )
        for name, each in PROVIDERS.items()
    ]


def _key_state(variable: str | None, environ: Mapping[str, str]) -> str:
    if variable is None:
        return "no key needed"
    return f"key in {variable}" if environ.get(variable) else f"needs {variable}"


def _row(name: str, kind: str, state: str, *, is_ready: bool, path: str | None = None) -> dict[str, Any]:
    return {"name": name, "kind": kind, "state": state, "path": path, "ready": is_ready}


def _join_facts(*facts: str) -> str:
    return ", ".join(facts)
