"""What is refused before it is sent costs nothing, and what an engine must not send is named alike on every carrier."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from tests.harness.several import Walk
from tests.support.carriers import over, served
from tests.support.steps import advance, begin
from ue_rl.bridges import MultiAgentBridge, run_in_thread
from ue_rl.connections.dialling import open_transport
from ue_rl.protocol.calls.asking import EngineCalls
from ue_rl.protocol.spec import AgentGroup, EnvSpec, EnvType
from ue_rl.protocol.transport import Transport
from ue_rl.system import errors

N = 4
CARRIERS = ("memory", "arrays", "shared", "per_env", "per_env-pure", "upgraded", "shm", "several", "several-shm")
Opener = Callable[..., Transport]


@pytest.fixture
def opener() -> Iterator[Opener]:
    """Opens games with N envs in all, over a carrier."""
    with contextlib.ExitStack() as stack:

        def connect(carrier: str, make: Callable[[int], Any] = Walk) -> Transport:
            if not carrier.startswith("several"):
                return stack.enter_context(over(carrier, make(N)))
            served_by = "shm" if "shm" in carrier else "shared"
            urls = [stack.enter_context(served(served_by, make(N // 2)))[0] for _ in range(2)]
            transport = stack.enter_context(contextlib.closing(open_transport(urls, timeout=20.0)))
            transport.connect()
            return transport

        yield connect


def gravities(transport: Transport) -> list[float]:
    calls = EngineCalls(transport)
    return [calls.get_parameters(["gravity"], env)["gravity"] for env in range(N)]


class Broken(Walk):
    """Its last env sends a number that is none from step 2 on."""

    where, value = "obs", float("nan")

    def create_state_string_for_env(self, env_id: int) -> Any:
        state = super().create_state_string_for_env(env_id)
        broken = self.where == "obs" and env_id == self.num_envs - 1 and self.steps[env_id] > 1
        return [*state[:3], self.value] if broken else state

    def calculate_reward_for_env(self, env_id: int) -> tuple[float, bool, bool]:
        reward, *flags = super().calculate_reward_for_env(env_id)
        broken = self.where == "reward" and env_id == self.num_envs - 1 and self.steps[env_id] > 1
        return (self.value if broken else reward, *flags)  # type: ignore[return-value]


@pytest.mark.parametrize("carrier", [carrier for carrier in CARRIERS if carrier != "arrays"])
@pytest.mark.parametrize("where", ["obs", "reward"])
@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_a_number_that_is_none_is_named_alike(opener: Opener, carrier: str, where: str, value: str) -> None:
    kind = type("Wrong", (Broken,), {"where": where, "value": float(value)})
    transport = opener(carrier, kind)
    begin(transport)
    advance(transport)
    with pytest.raises(errors.NonFiniteValue) as caught:
        advance(transport)
    error = caught.value
    assert isinstance(error, ValueError)
    last = 1 if carrier.startswith("several") else N - 1  # its first engine fails
    assert (error.env_id, error.field, error.fault) == (last, "OBS" if where == "obs" else "REW", "engine")
    assert value in str(error.got)
    with pytest.raises(errors.ConnectionUnusable):
        transport.reset()


@pytest.mark.parametrize("env_type", [EnvType.SINGLE, EnvType.RLBASE])
@pytest.mark.parametrize("where", ["obs", "reward"])
def test_of_one_env_too(env_type: EnvType, where: str) -> None:
    kind: Any = type("Wrong", (Broken,), {"where": where})
    with (
        run_in_thread(kind(1, env_type=env_type)) as engine,
        open_transport(engine.url, "tcp", timeout=20) as transport,
    ):
        for _ in range(2):
            begin(transport)
        advance(transport, 1)
        with pytest.raises(errors.NonFiniteValue, match="OBS" if where == "obs" else "REW"):
            advance(transport, 1)


@pytest.mark.parametrize("carrier", ["memory", "shared", "upgraded", "shm"])
def test_of_an_agent_too(opener: Opener, carrier: str) -> None:
    class Pair(MultiAgentBridge):
        steps = 0

        def __init__(self, num_envs: int) -> None:
            groups = [AgentGroup("red", 1, EnvSpec(1, 1)), AgentGroup("blue", 1, EnvSpec(2, 1))]
            super().__init__(groups, num_envs)

        def reset_env(self, env_id: int, seed: int | None, options: Any) -> None:
            """Nothing is drawn."""

        def step_env(self, env_id: int, actions: Any) -> None:
            self.steps += 1

        def observe(self, env_id: int) -> Mapping[str, Any]:
            return {"red": [1.0], "blue": [2.0, float("inf") if self.steps > N and env_id == 2 else 3.0]}

        def results(self, env_id: int) -> Mapping[str, tuple[float, bool, bool]]:
            return {"red": (1.0, False, False), "blue": (1.0, False, False)}

    transport = opener(carrier, Pair)
    begin(transport)
    actions = np.ones((2 * N, 1), np.float32)
    advance(transport, actions)
    transport.send_actions(actions)
    with pytest.raises(errors.NonFiniteValue, match="blue") as caught:
        transport.receive()
    assert (caught.value.env_id, caught.value.field) == (2, "OBS")


@pytest.mark.parametrize("compiled", [None, False])
@pytest.mark.parametrize("broken", [0, 1, 2])
def test_an_engine_that_goes_with_it_has_not_just_gone(compiled: bool | None, broken: int) -> None:
    def talk() -> None:
        sockets = [listener.accept()[0]]
        sockets[0].sendall(b"CONFIG:OBS=1;ACT=1;ENV_TYPE=MULTI;ENV_COUNT=3;VERSION=1;CHANNEL=PER_ENV\n")
        sockets += [listener.accept()[0] for _ in range(3)]
        for sock in sockets[1:]:
            sock.recv(100)
        sockets[broken + 1].sendall(b"OBS=nan;REW=0;DONE=0\n")
        for sock in sockets:
            sock.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        engine = threading.Thread(target=talk)
        engine.start()
        options: dict[str, Any] = {"compiled": compiled, "timeout": 20}
        with open_transport(f"tcp://127.0.0.1:{listener.getsockname()[1]}", "tcp", **options) as transport:
            transport.reset()
            engine.join()
            with pytest.raises(errors.NonFiniteValue, match=rf"env {broken}\b.*OBS"):
                transport.receive()
