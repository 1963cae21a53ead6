"""Runs one turn: from a conversation to a model and back."""

from __future__ import annotations

from ullage.turn.call import Settled
from ullage.turn.client import Client, TurnEvent

__all__ = ["Client", "Settled", "TurnEvent"]
