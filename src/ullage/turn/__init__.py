"""Runs one turn: from a conversation to a model and back."""

from __future__ import annotations

from ullage.turn.call import SHORT_ANSWER, AnswerShortened, Settled
from ullage.turn.client import Client, TurnEvent

__all__ = ["SHORT_ANSWER", "AnswerShortened", "Client", "Settled", "TurnEvent"]
