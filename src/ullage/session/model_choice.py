"""Chooses the model that answers: named on the command line, chosen last, or configured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ullage.broker import embedded_info
from ullage.session.preferences import CHOSEN_MODEL

if TYPE_CHECKING:
    from ullage.config.settings import ModelSettings, Settings
    from ullage.store.settings import PreferenceStore


class ModelChoice(NamedTuple):
    """A model, and a notice for the user if the last choice cannot be found."""

    model: ModelSettings
    notice: str = ""


def choose_model(settings: Settings, preferences: PreferenceStore, name: str | None = None) -> ModelChoice:
    """Returns the model with this name, else the one chosen last, else the configured one.

    A last choice that cannot be found is skipped, so that the shell starts and the user can choose another.
    """
    last = None if name else CHOSEN_MODEL.get(preferences)
    if last and not _can_be_found(last, settings):
        usual = settings.model()
        notice = (
            f"the model chosen last, {last}, cannot be found: {usual.name} answers instead. "
            "Choose another with :model NAME or `ullage model use NAME`"
        )
        return ModelChoice(usual, notice)
    return ModelChoice(settings.model(name or last))


def _can_be_found(name: str, settings: Settings) -> bool:
    from ullage.config.kinds import leads_somewhere  # noqa: PLC0415 - only needed for a saved choice

    if name in settings.models or name == embedded_info.EMBEDDED:
        return True
    if embedded_info.runs_here(name):
        return Path(name).expanduser().is_file()
    return leads_somewhere(name) is None
