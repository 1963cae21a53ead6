"""A running conversation: turns settings into an open model with its limits, ledger, summarizer and tools."""
