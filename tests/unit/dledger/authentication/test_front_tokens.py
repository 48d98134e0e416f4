"""Tokens of fronts: of one access key, one secret, one cluster, one address, for a quarter of an hour."""

from __future__ import annotations

import random
from ipaddress import ip_address

import pytest

from dledger.authentication.front_tokens import FRONT_PREFIX, FRONT_TOKEN_S, FrontClient, front_token, read_front_token
from dledger.authentication.tokens import Session, TokenRefused, session_token

KEY = b"k" * 32
NOW_S = 1_000_000
SECRETS = {"AK1": "SK123456"}


@pytest.mark.parametrize("address", ["10.0.0.1", "fd00::1", None])
def test_a_token_names_the_access_key_and_the_address_of_the_client(address) -> None:
    client = FrontClient("AK1", None if address is None else ip_address(address))
    token = front_token(client, "SK123456", KEY, NOW_S)
    read = read_front_token(token, (b"n" * 32, KEY), SECRETS.get, NOW_S)
    assert read == (client, NOW_S + FRONT_TOKEN_S)


def test_a_token_of_another_cluster_secret_key_or_time_is_refused() -> None:
    client = FrontClient("AK1", None)
    token = front_token(client, "SK123456", KEY, NOW_S)
    session = session_token(Session("AK1", 1, NOW_S + 60), KEY)
    for text, keys, secrets, now_s in {
        "cluster": (token, (b"n" * 32,), SECRETS, NOW_S),
        "no keys": (token, (), SECRETS, NOW_S),
        "secret": (token, (KEY,), {"AK1": "SK654321"}, NOW_S),
        "deleted": (token, (KEY,), {}, NOW_S),
        "expired": (token, (KEY,), SECRETS, NOW_S + FRONT_TOKEN_S),
        "too long": (token, (KEY,), SECRETS, NOW_S - 2 * FRONT_TOKEN_S),
        "none": (FRONT_PREFIX, (KEY,), SECRETS, NOW_S),
        "a session": (FRONT_PREFIX + session.removeprefix("dls1_"), (KEY,), SECRETS, NOW_S),
        "another prefix": (session, (KEY,), SECRETS, NOW_S),
    }.values():
        with pytest.raises(TokenRefused):
            read_front_token(text, keys, secrets.get, now_s)


def test_no_changed_token_is_accepted() -> None:
    token = front_token(FrontClient("AK1", ip_address("10.0.0.1")), "SK123456", KEY, NOW_S)
    random_ = random.Random(7)
    for _ in range(300):
        place = random_.randrange(len(token) - 1)
        changed = token[:place] + random_.choice("AZaz09-_é \0") + token[place + 1 :]
        if changed != token:
            with pytest.raises(TokenRefused):
                read_front_token(changed, (KEY,), SECRETS.get, NOW_S)
