"""Opens a model from settings, with the ledger of a session, and a conversation of one turn with it."""

from __future__ import annotations

import uuid
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from ullage.session.accounts import ledger_for, meter_for
from ullage.session.conversation import context_options, is_trimming, resume_context
from ullage.session.model_pool import OpenModel, open_model_for
from ullage.tokens.calibration import Calibration

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from decimal import Decimal

    from ullage.config import ModelSettings, Settings
    from ullage.context import Context
    from ullage.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """Options for one session; each replaces a setting."""

    session: str | None = None
    """Name of the conversation to continue; None for a new one."""
    project: str = ""
    """The project that the cost is booked on."""
    window: int | None = None
    max_output: int | None = None
    """Longest answer, in tokens."""
    cap_at_dollars: Decimal | str | None = None
    """Cap on the cost of the session, in US dollars."""

    def with_session(self) -> SessionOptions:
        """Returns these options with a session name; creates a new name if it is missing."""
        return self if self.session else replace(self, session=uuid.uuid4().hex)


async def open_session_model(
    model: ModelSettings,
    settings: Settings,
    kept: Store,
    environ: Mapping[str, str],
    options: SessionOptions,
) -> OpenModel:
    """Opens a model for a named session; its calls are booked in the ledger of that session."""
    return await open_model_for(
        model if options.window is None else replace(model, window=options.window),
        settings,
        environ=environ,
        ledger=ledger_for(
            settings,
            kept,
            options.session or "",
            options.project,
            cap_at_dollars=options.cap_at_dollars,
        ),
        calibration=Calibration(kept.calibration),
        max_output=options.max_output,
    )


class SingleTurn(NamedTuple):
    """A conversation for one question, and the model that answers it."""

    open_model: OpenModel
    context: Context


@asynccontextmanager
async def open_single_turn(
    model: ModelSettings,
    settings: Settings,
    kept: Store,
    environ: Mapping[str, str],
    options: SessionOptions,
    *,
    system_prompt: str,
) -> AsyncIterator[SingleTurn]:
    """Opens a model for one question and closes it at the end; the settings limit the conversation."""
    named = options.with_session()
    open_model = await open_session_model(model, settings, kept, environ, named)
    try:
        context = resume_context(
            named.session or "",
            kept.journal,
            context_options(settings, model),
            open_model.limits,
            system_prompt=system_prompt,
            meter=meter_for(settings),
        )
        context.set_trimming(is_trimming(settings, kept.preferences))
        yield SingleTurn(open_model, context)
    finally:
        await open_model.close()
