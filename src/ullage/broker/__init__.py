"""Streams answers from real models; every provider implements one small protocol."""
