"""The browser behind a request: its place, the site that it acts for, and its cookie."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.gateway.gate import is_direct
from ullage.gateway.refusals import Refused

if TYPE_CHECKING:
    from ullage.gateway.request import Received

COOKIE = "ullage-page"


def check_origin(request: Received) -> None:
    """Refuses a request that a page of another site sends.

    Newer browsers say so themselves. That holds behind a proxy too, which may change the host.
    """
    origin, host = request.header("origin"), request.header("host")
    is_known = bool(request.header("sec-fetch-site"))
    if not is_direct(request) or (
        origin and not is_known and origin not in {f"http://{host}", f"https://{host}"}
    ):
        raise Refused("forbidden", "Another site may not use the page of this gateway")


def _cookie_name(request: Received) -> str:
    """Returns the name of the cookie. Browsers do not tell ports apart, so the name does."""
    port = request.header("host").rpartition(":")[2]
    return f"{COOKIE}-{port}" if port.isascii() and port.isdigit() else COOKIE


def token_of(request: Received) -> str:
    """Returns the token of the login; empty if the browser sent none."""
    wanted = f"{_cookie_name(request)}="
    for each in request.header("cookie").split(";"):
        if each.strip().startswith(wanted):
            return each.strip().removeprefix(wanted)
    return ""


def cookie_with(request: Received, token: str, seconds: float) -> str:
    """Returns the header that sets the cookie; scripts cannot read it, and other sites cannot send it."""
    parts = [f"{_cookie_name(request)}={token}", "HttpOnly", "SameSite=Strict", "Path=/page"]
    parts.append(f"Max-Age={seconds:.0f}")
    if request.header("origin").startswith("https://"):  # a proxy in front of the gateway has TLS
        parts.append("Secure")
    return "; ".join(parts)
