"""Secrets: what looks like one is masked, and what only resembles one stays."""

from __future__ import annotations

import random
import string

import pytest

from ullage.session.secrets import MOST_KEPT, SecretKeeper, mask

# Written in two parts, so that no scanner takes these for real ones.
RANDOM = "q8Zr2" + "Lw9Xk4Vb7Nn1Mc6Td3Hy5Pf0Gs8Ja2Ue4Ri"
SECRETS = {
    "private key": "-----BEGIN OPENSSH " + "PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAA\nAAAA",
    "AWS key id": "AKIA" + "QWERTYUIOPASDFGH",
    "AWS secret key": "aws_secret_access_key = " + "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzzzzzzzKEY",
    "GitHub token": "ghp_" + RANDOM[:36],
    "GitLab token": "glpat-" + RANDOM[:20],
    "Slack token": "xoxb-" + "123456789012-" + RANDOM[:12],
    "Anthropic key": "sk-ant-" + "api03-" + RANDOM,
    "API key": "sk-proj-" + RANDOM,
    "Stripe key": "sk_live_" + RANDOM[:24],
    "Google API key": "AIza" + RANDOM[:35],
    "npm token": "npm_" + RANDOM[:36],
    "JSON web token": "eyJ" + "hbGciOiJIUzI1NiJ9.eyJ" + "zdWIiOiIxMjM0In0." + RANDOM,
    "credentials of a request": "Authorization: Bearer " + RANDOM,
    "password in an address": "postgres://keeper:" + "tide-4-low@db.example/harbour",
    "password hash": "keeper:$6$" + "rounds$" + RANDOM + ":19000:",
    "password": "DB_PASSWORD=" + "tide4low",
    "key or token": 'session_token: "' + RANDOM + '"',
}
"""Kind → a text with one secret of it."""
HARMLESS = (
    "token_budget = 4096, max_tokens: 100, api_key = os.environ['KEY']",
    "password = getpass.getpass()\npassword: str | None = None\nPASSWORD=$OTHER",
    "commit 4f3c2b1a9d8e7f6a5b4c3d2e1f0a9b8c7d6e5f4a",
    "secret: name-of-the-secret-in-the-cluster",
    "https://example.org:8080/path@v2 and user@example.org",
    "PASS: test_tides.py, 3 passed; bypass=true; compass: north-by-west",
    "-----BEGIN PUBLIC KEY-----\nMIIBIjANBgkqhkiG\n-----END PUBLIC KEY-----",
    "sk-learn-is-a-library-for-python",
    "primary key: boats_pkey, foreign key (boat) references boats",
)


@pytest.mark.parametrize("kind", SECRETS)
def test_a_secret_of_each_kind_is_masked(kind: str) -> None:
    text = f"before\n{SECRETS[kind]}\nafter"
    masked = mask(text)
    assert masked.found == {kind: 1}
    assert f"<masked: {kind}>" in masked.text
    assert RANDOM[:12] not in masked.text
    assert masked.text.startswith("before\n")
    assert mask(masked.text).text == masked.text


@pytest.mark.parametrize("text", HARMLESS)
def test_what_only_resembles_a_secret_stays(text: str) -> None:
    assert mask(text) == (text, {})


@pytest.mark.parametrize(
    "text",
    ["a_" * 50_000 + "=", "pass" * 30_000, "key_" * 30_000, "authorization: " * 9_000, "a://" * 30_000],
)
def test_no_text_makes_the_search_slow(text: str) -> None:
    """Twice the text takes about twice the time, not four times."""
    import time

    def seconds(sought: str) -> float:
        began = time.process_time()
        mask(sought)
        return time.process_time() - began

    seconds(text)
    once, twice = (min(seconds(each) for _ in range(3)) for each in (text, text * 2))
    assert twice < 3.5 * once + 0.05


def test_the_oldest_texts_are_forgotten() -> None:
    keeper, chance = SecretKeeper(), random.Random(1)  # noqa: S311 - repeatable, not secret
    handles = []
    for _ in range(MOST_KEPT + 1):
        text = "ghp_" + "".join(chance.choices(string.ascii_letters, k=36))
        handles.append(keeper.mask(text)[1].partition(":recall ")[2].split()[0])
    assert keeper.recall(handles[0]) is None
    assert keeper.recall(handles[1]) is not None
    assert keeper.recall("") is None
    assert SecretKeeper(enabled=False).mask(text) == (text, "")
