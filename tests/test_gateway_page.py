"""The page of the gateway in a real browser: live, safe, readable, and usable by keyboard and on a phone."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser import PHONE, needs_browser, opened
from tests.gateway import CLAUDE, MODEL, Gateway, chat, priced, serving
from tests.player import Request, Script, playing, sent_json
from tests.test_gateway_fitting import loop_chat, loop_messages
from tests.world import PATIENCE, until
from ullage.cost.keys import Limits

if TYPE_CHECKING:
    from tests.browser import Tab

pytestmark = [pytest.mark.enable_socket, needs_browser]

WINDOW = 4_000
EVIL = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'
USAGE = {"choices": [], "usage": {"prompt_tokens": 900, "completion_tokens": 100}}
UNCOUNTED = {"choices": []}
"""An answer without usage, so that nothing is learned about the upstream's counts."""
CONTRAST = """
() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgb = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => {
    const linear = (v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    const [x, y, z] = [r, g, b].map((value) => linear(value / 255));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const ground = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const colour = rgb(getComputedStyle(each).backgroundColor);
      if (colour[3] === 255) return colour;
    }
    return rgb(getComputedStyle(document.body).backgroundColor);
  };
  const weak = [];
  for (const element of document.querySelectorAll("body *")) {
    const says = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!says || !element.checkVisibility() || element.closest(".skip, svg, script, noscript")) continue;
    const both = [light(rgb(getComputedStyle(element).color)), light(ground(element))];
    const ratio = (Math.max(...both) + 0.05) / (Math.min(...both) + 0.05);
    if (ratio < 4.5) weak.push(`${element.outerHTML.slice(0, 80)} ${ratio.toFixed(2)}`);
  }
  return weak;
}
"""
"""Lists the texts whose contrast is below 4.5."""


def log_in(tab: Tab, secret: str) -> None:
    tab.page.fill("#key", secret)
    tab.page.keyboard.press("Enter")


def wait_live(tab: Tab) -> None:
    tab.page.wait_for_selector(".link.live")


def wait_text(tab: Tab, selector: str, text: str) -> None:
    """Waits until an element has a text."""
    tab.page.locator(selector, has_text=text).first.wait_for()


def run_loop(gateway: Gateway, steps: int, headers: dict[str, str] | None = None) -> None:
    for step in range(1, steps + 1):
        assert gateway.ask("/v1/chat/completions", loop_chat(step), headers=headers).status == 200


def test_a_conversation_grows_on_an_open_page() -> None:
    with (
        playing(sent_json(UNCOUNTED)) as player,
        serving(player.url, window=WINDOW) as gateway,
        opened(gateway.url) as tab,
    ):
        wait_live(tab)
        wait_text(tab, "#conversations-empty", "No conversation yet")
        widths = []
        for steps in (1, 2, 3):
            answer = gateway.ask("/v1/chat/completions", loop_chat(steps), headers={"user-agent": "boat/1"})
            wait_text(tab, ".card .size", f"{int(answer.headers['x-ullage-tokens']):,}")
            tab.page.wait_for_function(
                "() => document.querySelector('.card .turns').getAnimations().length === 0"
            )
            widths.append(tab.page.locator(".card .gauge .turns").bounding_box()["width"])
        assert widths == sorted(set(widths))
        wait_text(tab, ".card h3", "boat/1")
        assert tab.page.locator(".requests li").count() == 3
        label = tab.page.locator(".card .gauge").get_attribute("aria-label")
        assert all(word in label for word in ("system prompt", "tools", "messages", "free"))
        tab.check()


def test_a_request_is_shown_while_it_is_under_way() -> None:
    release = threading.Event()

    def answer(_: Request) -> Script:
        assert release.wait(PATIENCE)
        return sent_json(UNCOUNTED)

    with (
        playing(answer) as player,
        serving(player.url, window=WINDOW) as gateway,
        opened(gateway.url) as tab,
        ThreadPoolExecutor(1) as thread,
    ):
        wait_live(tab)
        headers = {"user-agent": f"boat/1{EVIL[:20]}"}
        asked = thread.submit(gateway.ask, "/v1/chat/completions", loop_chat(2), headers=headers)
        try:
            wait_text(tab, "#running li", "under way")
            wait_text(tab, "#running li", "boat/1")
            wait_text(tab, "#tiles", "0 refused, 1 under way")
            assert tab.page.locator("#requests li").count() == 0
            label = tab.page.locator("#running .gauge").get_attribute("aria-label")
            assert all(word in label for word in ("tools", "messages", "free"))
            assert tab.page.evaluate(CONTRAST) == []
            tab.page.select_option("#filter", "errors")
            assert tab.page.locator("#running li").count() == 0
            tab.page.select_option("#filter", "all")
            assert tab.page.locator("#running li").count() == 1
        finally:
            release.set()
        assert asked.result().status == 200
        wait_text(tab, "#tiles", "0 refused, 0 under way")
        wait_text(tab, "#requests li", "boat/1")
        assert tab.page.locator("#running li").count() == 0
        tab.check()


def test_a_trim_is_shown_with_its_reason_and_its_figures() -> None:
    with playing(sent_json(UNCOUNTED)) as player, serving(player.url, window=WINDOW) as gateway:
        run_loop(gateway, 12)
        with opened(gateway.url) as tab:
            wait_live(tab)
            tab.page.select_option("#filter", "changed")
            row = tab.page.locator(".requests details").first
            row.locator("summary").click()
            wait_text(tab, ".inside .reasons li", "old step of a long loop")
            cells = row.locator("tbody tr").first.locator("td").all_inner_texts()
            assert "tool (read)" in cells[0]
            assert cells[1] == "step taken out"
            assert "step taken out × " in row.locator(".badges").inner_text()
            assert int(cells[2].replace(",", "")) > int(cells[3].replace(",", "")) == 0
            wait_text(tab, ".inside p", "Kept 6 of 18 messages, 0 of them in a shorter form")
            assert row.locator("pre").count() == 0
            assert "wind and rain" not in tab.page.content()
            tab.check()


def test_texts_are_shown_only_if_bodies_are_kept() -> None:
    with (
        playing(sent_json(UNCOUNTED)) as player,
        serving(player.url, window=WINDOW, keep_bodies=True) as gateway,
    ):
        run_loop(gateway, 12, {"authorization": "Bearer some-private-secret"})
        with opened(gateway.url) as tab:
            wait_live(tab)
            tab.page.select_option("#filter", "changed")
            tab.page.locator(".requests summary").first.click()
            tab.page.get_by_role("button", name="Show texts").click()
            wait_text(tab, "pre", "wind and rain")
            wait_text(tab, ".texts", "no longer sent")
            tab.check()


def test_costs_survive_a_restart_and_caps_show_what_is_left() -> None:
    with playing(sent_json(USAGE)) as player, serving(priced(player.url), config=DAY_CAP) as gateway:
        user = gateway.kept.keys.create("laptop", dollars=Limits(Decimal(5)), requests_a_minute=600)
        owner = gateway.kept.keys.create("owner", is_admin=True)
        headers = {"authorization": f"Bearer {user.secret}"}
        for _ in range(3):
            assert gateway.ask("/v1/chat/completions", chat("Hi"), headers=headers).status == 200
        with opened(gateway.url) as tab:
            log_in(tab, owner.secret)
            wait_live(tab)
            wait_text(tab, "#cost-legend li", MODEL)
            spent = sum(entry.cost for entry in gateway.booked())
            wait_text(tab, "#cost-legend .amount", f"${spent:.4f}")
            tab.page.select_option("#cost-by", "by_key")
            wait_text(tab, "#cost-legend li", "laptop")
            wait_text(tab, "#caps li", "all calls today")
            wait_text(tab, "#caps li", "laptop, today")
            wait_text(tab, "#caps li", "600 requests")
            before = tab.page.locator("#caps li", has_text="laptop, today").inner_text()
            gateway.ask("/v1/chat/completions", chat("Hi again"), headers=headers)
            tab.page.wait_for_function(
                "old => [...document.querySelectorAll('#caps li')].every((each) => each.innerText !== old)",
                arg=before,
            )
            tab.check()


DAY_CAP = "[cost]\ncap_at_dollars_a_day = 3\n"


def test_only_an_admin_key_opens_the_page() -> None:
    with playing(sent_json(USAGE)) as player, serving(player.url) as gateway:
        plain = gateway.kept.keys.create("plain")
        owner = gateway.kept.keys.create("owner", is_admin=True)
        with opened(gateway.url) as tab:
            for wrong, told in (("nonsense", "unknown"), (plain.secret, "may not see the page")):
                log_in(tab, wrong)
                wait_text(tab, "#login-error", told)
            assert tab.page.locator("main").is_hidden()
            log_in(tab, owner.secret)
            wait_live(tab)
            assert tab.page.locator("main").is_visible()
            assert tab.page.evaluate("document.cookie") == ""
            (cookie,) = tab.page.context.cookies(f"{gateway.url}/page/state")
            assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
            tab.page.reload()
            wait_live(tab)
            tab.page.get_by_role("button", name="Log out").click()
            tab.page.wait_for_selector("#login:not([hidden])")
            tab.page.reload()
            tab.page.wait_for_selector("#login:not([hidden])")
            assert all("401" in each or "403" in each for each in tab.complaints)


def test_a_session_is_named_so_that_it_can_be_told_from_others() -> None:
    with (
        playing(sent_json(UNCOUNTED)) as player,
        serving(player.url) as gateway,
        opened(gateway.url) as tab,
    ):
        wait_live(tab)
        for session in ("session-1", "session-2", "0f" * 16):
            headers = {"x-session-id": session, "user-agent": "boat/1"}
            gateway.ask("/v1/chat/completions", loop_chat(1), headers=headers)
        for name in ("session-1", "session-2", "0f0f0f0f"):
            wait_text(tab, "#conversations", f"boat/1 · {name}")
        assert "0f" * 5 not in tab.page.locator("#conversations").inner_text()
        tab.check()


def test_foreign_text_stays_text() -> None:
    body = loop_chat(12)
    body["model"] = f"{EVIL}"
    for message in body["messages"]:
        if message["role"] == "tool":
            message["content"] = f"{EVIL} {message['content']}"
        for call in message.get("tool_calls", ()):
            call["function"]["name"] = EVIL
    headers = {"x-session-id": EVIL, "user-agent": f"{EVIL} agent"}
    with (
        playing(sent_json(UNCOUNTED)) as player,
        serving(player.url, window=WINDOW, keep_bodies=True) as gateway,
        opened(gateway.url) as tab,
    ):
        wait_live(tab)
        gateway.ask("/v1/chat/completions", body, headers=headers)
        gateway.ask(f"/v1/{EVIL.replace(' ', '')}", headers=headers)
        gateway.ask("/v1/chat/completions", {"model": EVIL, "messages": EVIL}, headers=headers)
        wait_text(tab, ".card .owner", "<img src=x")
        wait_text(tab, "#errors li", "<img")
        tab.page.locator(".requests summary:has(.badge.cut)").click()
        wait_text(tab, ".inside td", "<script>")
        tab.page.get_by_role("button", name="Show texts").first.click()
        wait_text(tab, "pre", "onerror=")
        assert tab.page.evaluate("window.hacked") is None
        assert tab.page.locator("main img, main script").count() == 0
        tab.check()


def test_another_site_can_neither_read_nor_frame_the_page() -> None:
    """The other site is on another port of the same machine, so cookies alone would not keep it out."""
    site = Script(body=b"<!doctype html><title>Another site</title>", kind="text/html")
    read = "url => fetch(url, { credentials: 'include' }).then((answer) => answer.status, () => 'blocked')"
    frame = """url => new Promise((loaded) => {
      const frame = document.createElement("iframe");
      frame.onload = loaded;
      frame.src = url;
      document.body.append(frame);
    })"""
    with playing(site) as other, serving("http://127.0.0.1:9") as gateway:
        owner = gateway.kept.keys.create("owner", is_admin=True)
        with opened(gateway.url) as tab:
            log_in(tab, owner.secret)
            wait_live(tab)
            tab.page.goto(other.url)
            assert tab.page.evaluate(read, arg=f"{gateway.url}/page/state") == "blocked"
            tab.page.evaluate(frame, arg=f"{gateway.url}/")
            assert gateway.url not in {each.url.rstrip("/") for each in tab.page.frames}
            tab.page.goto(gateway.url)
            wait_live(tab)


def test_a_name_that_somebody_else_points_at_this_machine_shows_nothing() -> None:
    with serving("http://127.0.0.1:9") as gateway:
        name = f"http://evil.example:{gateway.port}/"
        with opened(name, "--host-resolver-rules=MAP evil.example 127.0.0.1") as tab:
            assert "The request names another host" in tab.page.content()
            status = "path => fetch(path).then((answer) => answer.status)"
            assert tab.page.evaluate(status, arg="/page/state") == 403


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_enough_contrast(scheme: str) -> None:
    with (
        playing(sent_json(UNCOUNTED)) as player,
        serving(player.url, window=WINDOW, config=DAY_CAP) as gateway,
    ):
        run_loop(gateway, 12)
        gateway.ask("/v1/nothing")
        with opened(gateway.url, color_scheme=scheme) as tab:
            wait_live(tab)
            tab.page.select_option("#filter", "changed")
            tab.page.locator(".requests summary").first.click()
            assert tab.page.evaluate(CONTRAST) == []
            ground = tab.page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (ground == "rgb(16, 20, 28)") == (scheme == "dark")
            tab.check()


def test_a_phone_scrolls_only_down() -> None:
    long = {"x-session-id": "x" * 300, "user-agent": "y" * 300}
    with playing(sent_json(UNCOUNTED)) as player, serving(player.url, window=WINDOW) as gateway:
        run_loop(gateway, 12)
        gateway.ask("/v1/messages", loop_messages(9) | {"model": CLAUDE + "z" * 180}, headers=long)
        gateway.ask("/v1/" + "nothing" * 40)
        with opened(gateway.url, viewport=PHONE, has_touch=True) as tab:
            wait_live(tab)
            tab.page.select_option("#filter", "changed")
            tab.page.locator(".requests summary").first.tap()
            tab.page.wait_for_selector(".inside table")
            tab.page.locator("section details summary", has_text="As a table").tap()
            assert tab.page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
            tab.check()


def test_the_keyboard_reaches_everything() -> None:
    with playing(sent_json(UNCOUNTED)) as player, serving(player.url, window=WINDOW) as gateway:
        owner = gateway.kept.keys.create("owner", is_admin=True)
        run_loop(gateway, 12, {"authorization": f"Bearer {owner.secret}"})
        with opened(gateway.url) as tab:
            tab.page.wait_for_selector("#key:focus")
            tab.page.keyboard.type(owner.secret)
            tab.page.keyboard.press("Enter")
            wait_live(tab)
            reached = walk(tab, 60)
            assert {"logout", "filter", "cost-by", "cost-unit"} <= reached
            assert any("Show the requests of" in each for each in reached)
            tab.page.locator(".card button").focus()
            tab.page.keyboard.press("Enter")
            tab.page.wait_for_selector("#unfilter:focus")
            tab.page.keyboard.press("Tab")
            tab.page.keyboard.press("Enter")
            tab.page.wait_for_selector(".requests details[open] .inside")
            outline = tab.page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert outline == "solid"
            tab.check()


def walk(tab: Tab, most: int) -> set[str]:
    """The ids or labels of the elements that the tab key reaches."""
    found: set[Any] = set()
    for _ in range(most):
        tab.page.keyboard.press("Tab")
        found.add(
            tab.page.evaluate(
                "document.activeElement.id || document.activeElement.getAttribute('aria-label') || ''"
            )
        )
    return found


def test_everything_that_takes_input_has_a_name() -> None:
    unnamed = """
    () => [...document.querySelectorAll("input, select, button, [role=img], [role=region], ol, ul")]
      .filter((each) => each.checkVisibility())
      .filter((each) => !(each.labels?.length || each.ariaLabel || each.textContent.trim()))
      .filter((each) => !["OL", "UL"].includes(each.tagName))
      .map((each) => each.outerHTML.slice(0, 80))
    """
    with playing(sent_json(UNCOUNTED)) as player, serving(player.url, window=WINDOW) as gateway:
        run_loop(gateway, 3)
        with opened(gateway.url) as tab:
            wait_live(tab)
            assert tab.page.evaluate(unnamed) == []
            assert tab.page.evaluate("document.documentElement.lang") == "en"


def test_motion_stops_for_people_who_ask_for_it() -> None:
    with playing(sent_json(UNCOUNTED)) as player, serving(player.url, window=WINDOW) as gateway:
        run_loop(gateway, 1)
        with opened(gateway.url, reduced_motion="reduce") as tab:
            wait_live(tab)
            style = "getComputedStyle(document.querySelector('.gauge span')).transitionProperty"
            assert tab.page.evaluate(style) == "none"


def test_a_hidden_page_does_not_listen_and_a_shown_one_is_up_to_date() -> None:
    hide = """(hidden) => {
      Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }"""
    with (
        playing(sent_json(UNCOUNTED)) as player,
        serving(player.url, window=WINDOW) as gateway,
        opened(gateway.url) as tab,
    ):
        wait_live(tab)
        run_loop(gateway, 1)
        tab.page.locator(".requests summary").click()
        tab.page.evaluate(hide, arg=True)
        assert until(lambda: gateway.app._activity.watchers == 0)
        run_loop(gateway, 2)
        tab.page.evaluate(hide, arg=False)
        wait_text(tab, ".card .facts", "3")
        assert until(lambda: gateway.app._activity.watchers == 1)
        assert tab.page.locator(".requests details[open]").count() == 1
        tab.check()


def test_a_page_finds_its_gateway_again() -> None:
    with (
        playing(sent_json(UNCOUNTED)) as player,
        serving(player.url, window=WINDOW) as gateway,
        opened(gateway.url) as tab,
    ):
        wait_live(tab)
        tab.page.context.set_offline(True)
        gateway.kept.keys.create("someone")  # ends the streams of browsers that are not logged in
        tab.page.wait_for_selector(".link.lost")
        tab.page.context.set_offline(False)
        tab.page.wait_for_selector("#login:not([hidden])")
