"""Real models, streamed: every provider behind one small protocol."""
