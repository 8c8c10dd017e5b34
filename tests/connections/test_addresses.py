"""The URL of an engine: one grammar for ue_rl.connect and every command; what is wrong is named by its part."""

from __future__ import annotations

from typing import Any

import pytest

import ue_rl
from samples.reach import ReachBridge
from ue_rl.bridges import run_in_thread
from ue_rl.connections.base.address import split_place
from ue_rl.connections.dialling import address_of
from ue_rl.system import errors


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("localhost", "tcp://localhost:7777"),
        ("1.2.3.4:9", "tcp://1.2.3.4:9"),
        ("tcp://localhost", "tcp://localhost:7777"),
        ("tcp://10.0.0.1:65535/", "tcp://10.0.0.1:65535"),
        ("::1", "tcp://[::1]:7777"),
        ("[::1]:9", "tcp://[::1]:9"),
        ("tcp://[::1]", "tcp://[::1]:7777"),
        ("tcp://10.0.0.{worker_index}:7777", "tcp://10.0.0.{worker_index}:7777"),
        ("shm://mine", "shm://mine"),
        ("shm:///tmp/a file", "shm:///tmp/a file"),
        ("shm://", "shm://"),
        ("a:1?channel=per-env&transport=tcp", "tcp://a:1?channel=per-env&transport=tcp"),
        ("a:1?channel=per_env&nul_terminated=true", "tcp://a:1?channel=per-env&nul-terminated=yes"),
        ("a:1?timeout=2min&connect-timeout=500ms&wait=0", "tcp://a:1?timeout=2min&connect-timeout=0.5s&wait=0s"),
        ("shm://a?timeout=5&", "shm://a?timeout=5s"),
    ],
)
def test_an_address_has_one_canonical_form(text: str, canonical: str) -> None:
    assert str(address_of(text)) == canonical
    assert address_of(canonical) == address_of(text)


def test_what_it_says_are_arguments_of_connect() -> None:
    address = address_of("tcp://a:1?channel=per-env&nul-terminated=no&wait=1h")
    assert address == ("tcp", "a:1", {"channel": "per_env", "nul_terminated": False, "wait": 3600.0})
    assert address.url == "tcp://a:1"
    assert split_place("[::1]:0", lowest=0) == ("::1", 0)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("http://x:1", "cannot begin with http://"),
        ("tpc://x:1", "Did you mean 'tcp'"),
        ("", "host is missing"),
        ("tcp://", "host is missing"),
        ("tcp://:1", "host is missing"),
        ("tcp://x/a", "host cannot be 'x/a'"),
        ("tcp://me@x:1", "host cannot be 'me@x'"),
        ("7777", "7777 is a port, and the host is missing"),
        ("7799", "A right one: tcp://127.0.0.1:7799"),
        ("tcp://x:0", "port must be a number from 1 to 65535, not '0'"),
        ("tcp://x:99999", "port must be"),
        ("tcp://x:y", "port must be"),
        ("tcp://x:" + 5000 * "9", "port must be"),
        ("grpc://x?num-envs=" + 5000 * "9", "num-envs must be a whole number"),
        ("tcp://x:", "port must be"),
        ("tcp://x:\u0661", "port must be"),
        ("tcp://[::1", "IPv6 address ends with"),
        ("x?chanel=shared", "'chanel' cannot stand behind the.*Did you mean 'channel'"),
        ("x?channel=both", "channel must be auto or shared or per-env, not 'both'"),
        ("x?timeout=soon", "timeout must be a duration such as"),
        ("x?timeout", "timeout has no value"),
        ("x?nul-terminated=maybe", "nul-terminated must be yes or no"),
        ("x?wait=1&wait=2", "wait is there twice"),
        ("shm://x?channel=shared", "its options are timeout, connect-timeout, wait"),
    ],
)
def test_a_wrong_part_is_named_with_a_right_address(text: str, part: str) -> None:
    with pytest.raises(errors.ConfigurationError, match=part) as caught:
        ue_rl.connect(text)
    assert caught.value.field == "url"
    assert "://" in str(caught.value.expected)


@pytest.mark.parametrize(
    ("query", "arguments", "transport"),
    [
        ("channel=per-env", {}, "per-env sockets|2 env sockets|per env"),
        ("channel=shared", {"channel": "per_env"}, "shared channel"),
        ("transport=tcp", {"channel": "shared"}, "shared channel"),
    ],
)
def test_an_option_in_the_address_goes_before_the_argument(
    query: str, arguments: dict[str, Any], transport: str
) -> None:
    with run_in_thread(ReachBridge(2)) as server:
        for url in (f"{server.url}?{query}", [f"{server.url}?{query}"]):
            env = ue_rl.connect(url, **arguments, timeout=10)
            shown = " ".join(env.transport.describe().values())  # type: ignore[attr-defined]
            env.reset()
            env.close()
            assert any(word in shown for word in transport.split("|")), shown


def test_a_deadline_in_the_address_is_that_of_its_engine() -> None:
    with run_in_thread(ReachBridge(1)) as server:
        env = ue_rl.connect(f"{server.url}?timeout=90s", timeout=20)
        assert env.transport.timeout == 90.0
        env.close()
