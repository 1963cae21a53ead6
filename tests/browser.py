"""A real Chromium, the system's own, driven by Playwright's library."""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.world import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-proxy-server")
"""Tests often run as root and in containers with little shared memory."""
WATCH = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) => {
  window.violations.push(`${event.violatedDirective} ${event.blockedURI}`);
});
"""
EXPECTED = "status of 401"
"""The console's line about a page that asks for a login."""


def program() -> str | None:
    """The browser; None if there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


def missing() -> str:
    """The part that is not installed, and what installs it; or empty."""
    if importlib.util.find_spec("playwright") is None:
        return "Playwright is not installed: pip install playwright"
    return "" if program() else "no Chromium is installed: apt-get install chromium"


needs_browser = pytest.mark.skipif(bool(missing()), reason=missing() or "all is there")


class Tab(NamedTuple):
    """An open page, and what its console said."""

    page: Page
    browser: Browser
    complaints: list[str]

    def check(self) -> None:
        """Fails if the console has an error, or the policy of the page was violated."""
        assert self.page.evaluate("window.violations") == []
        assert [each for each in self.complaints if EXPECTED not in each] == []


@contextlib.contextmanager
def opened(url: str, *arguments: str, **options: Any) -> Iterator[Tab]:
    """A page in a browser of its own.

    The arguments are those of the browser, and the options those of Playwright's contexts.
    """
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program(), args=[*ARGUMENTS, *arguments])
        try:
            context = browser.new_context(viewport=options.pop("viewport", None) or SCREEN, **options)
            context.set_default_timeout(PATIENCE * 1000)
            context.add_init_script(WATCH)
            page = context.new_page()
            complaints: list[str] = []
            page.on("console", lambda said: said.type == "error" and complaints.append(said.text))
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.goto(url)
            yield Tab(page, browser, complaints)
        finally:
            browser.close()


SCREEN = {"width": 1280, "height": 900}
PHONE = {"width": 360, "height": 740}
