"""Ctrl-Z at the prompt: stops the shell, and gives the terminal back to the program that started it."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ullage.shell.screen import Screen


def suspend(screen: Screen) -> None:
    """Stops this process and its group; returns when `fg` continues them.

    A shell that the terminal itself has started has nobody to go back to. It says so and goes on.
    """
    if os.getsid(0) == os.getpgrp():
        screen.dim("no other shell has started this one, so it cannot be suspended; Ctrl-D leaves")
        return
    with screen.loud():
        os.killpg(0, signal.SIGTSTP)
