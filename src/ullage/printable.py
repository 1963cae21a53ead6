"""Somebody else's text, made harmless for a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    """Text with a blank for each control character, so that it moves no cursor and rings no bell."""
    return "".join(each if each.isprintable() else " " for each in text)
