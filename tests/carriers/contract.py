"""What every Transport does, whatever carries it: `ue_rl.protocol.transport` says it, these tests ask it.

A carrier takes part by a class of its own:

    class TestPigeons(Contract):
        @pytest.fixture
        def opener(self) -> Iterator[Opener]: ...

An opener takes a function that makes a Walk of so many envs, and returns a transport to N of them; for Beginning one
that is not connected yet. A carrier that sets parameters of the game takes part in Parameters, too.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from tests.harness.several import MaskedWalk, Walk
from tests.support.steps import advance, begin
from ue_rl.protocol.buffers import StepBuffers
from ue_rl.protocol.calls.asking import EngineCalls
from ue_rl.protocol.calls.parameters import Randomizer, randomize
from ue_rl.protocol.transport import Transport
from ue_rl.system import errors

N = 4
Opener = Callable[..., Transport]  # (make: Callable[[int], Walk] = Walk) -> Transport


class Quiet(Walk):
    """Takes neither seeds nor options."""

    def __init__(self, num_envs: int, first: int = 0) -> None:
        super().__init__(num_envs, first)
        self.configure(type(self.spec)(4, 1, num_envs=num_envs, action=self.spec.action))


def ones(value: float = 1.0) -> Any:
    return np.full((N, 1), value, np.float32)


def rows(buffers: StepBuffers) -> list[list[float]]:
    """Of each env: itself among all, seed, steps, last action."""
    return buffers.obs.tolist()


def gravities(transport: Transport) -> list[float]:
    calls = EngineCalls(transport)
    return [calls.get_parameters(["gravity"], env)["gravity"] for env in range(N)]


class Beginning:
    """Of transports that are made before they are connected."""

    def test_nothing_is_known_before_it_is_connected(self, opener: Opener) -> None:
        transport = opener()
        with pytest.raises(errors.ConnectionUnusable):
            _ = transport.spec
        for ask in (transport.reset, transport.receive, lambda: transport.send_actions(ones())):
            with pytest.raises(errors.ConnectionUnusable):
                ask()
        assert transport.connect().num_envs == N

    def test_it_may_be_closed_before_it_is_connected(self, opener: Opener) -> None:
        transport = opener()
        transport.close()
        with pytest.raises(errors.ConnectionUnusable):
            transport.connect()


class Contract:
    """See the module's docstring.

    Attributes:
        envs_apart: each env is a game of its own, which calls itself env 0.
        draws_seeds: an env that is given no seed begins with one that the engine draws.
    """

    envs_apart = False
    draws_seeds = False

    def env(self, number: int) -> float:
        """As the game calls it."""
        if self.envs_apart:
            return 0.0
        return float(number)

    def seeds(self, buffers: StepBuffers, given: Sequence[int | None]) -> None:
        """Asserts with which seeds the envs have begun."""
        for row, seed in zip(rows(buffers), given, strict=True):
            if seed is not None:
                assert row[1] == seed
            elif not self.draws_seeds:
                assert row[1] == -1

    # -- life

    def test_it_is_connected_once(self, opener: Opener) -> None:
        transport = opener()
        spec = transport.connect()
        assert transport.connect() is spec
        assert transport.spec is spec
        assert (spec.num_envs, spec.obs_size, spec.act_size) == (N, 4, 1)
        assert {"SEED", "OPTIONS", "TRUNC", "INFO"} <= spec.features
        buffers = transport.buffers
        assert (buffers.obs.shape, buffers.obs.dtype) == ((N, 4), np.float32)
        assert (buffers.rewards.shape, buffers.rewards.dtype) == ((N,), np.float32)
        for flags in (buffers.dones, buffers.truncated, buffers.pending, buffers.present):
            assert (flags.shape, flags.dtype) == ((N,), np.uint8)
        said = transport.describe()
        assert said
        assert all(isinstance(each, str) for pair in said.items() for each in pair)
        assert isinstance(transport.handshake, str)

    def test_it_is_closed_for_good_and_closing_never_raises(self, opener: Opener) -> None:
        transport = opener()
        begin(transport)
        transport.send_actions(ones())  # the answer is under way
        transport.close()
        transport.close()
        transport.fail("too late")
        for ask in (transport.reset, transport.receive, lambda: transport.send_actions(ones())):
            with pytest.raises(errors.ConnectionUnusable, match="close"):
                ask()
        assert rows(transport.buffers)[0][0] == self.env(0)  # what was given out stays readable

    def test_what_made_it_fail_is_the_reason_of_every_later_error(self, opener: Opener) -> None:
        transport = opener()
        begin(transport)
        transport.fail("the trainer's own reason")
        for ask in (transport.reset, transport.receive, lambda: transport.send_actions(ones())):
            with pytest.raises(errors.ConnectionUnusable, match="the trainer's own reason"):
                ask()

    # -- episodes

    def test_a_step_is_each_envs_own(self, opener: Opener) -> None:
        transport = opener()
        assert rows(begin(transport, None, [3] * N)) == [[self.env(env), 3, 0, 0] for env in range(N)]
        actions = np.array([[0], [1], [2], [1]], np.float32)
        transport.send_actions(actions)
        actions[:] = 2  # the caller may use his array again
        answer = transport.receive()
        assert answer is transport.buffers
        assert rows(answer) == [[self.env(env), 3, 1, action] for env, action in enumerate((0, 1, 2, 1))]
        assert answer.rewards.tolist() == [1.0, 1.25, 1.5, 1.25]
        assert answer.infos == {env: {"step": 1} for env in range(N)}
        assert not answer.dones.any()
        assert not answer.lost
        assert answer.present.all()

    def test_an_episode_ends_by_itself_or_by_a_limit_and_another_begins(self, opener: Opener) -> None:
        transport = opener()
        begin(transport, None, [1, 2, 5, 4])  # 4 steps and truncated; 5 steps; 4 steps and truncated; 3 steps
        ends = {}
        for step in range(1, 6):
            over = [env for env in ends if ends[env][0] == step - 1]
            answer = advance(transport, 1.0, over)
            for env in range(N):
                if answer.dones[env] and env not in ends:
                    ends[env] = (step, bool(answer.truncated[env]))
            for env in over:
                assert [rows(answer)[env][at] for at in (0, 2, 3)] == [self.env(env), 0, 0]
                assert (answer.rewards[env], answer.dones[env], answer.truncated[env]) == (0, 0, 0)
        assert ends == {0: (4, True), 1: (5, False), 2: (4, True), 3: (3, False)}

    def test_some_begin_anew_while_others_step_and_others_rest(self, opener: Opener) -> None:
        transport = opener()
        begin(transport)
        before = rows(advance(transport, 2.0))
        answer = advance(transport, 1.0, [2], resting=[0])
        assert rows(answer)[0] == before[0]
        assert 0 not in answer.infos
        answer = advance(transport, 1.0, resting=(2, 3))
        # Env 0 has rested in the second request alone, 2 and 3 in the third.
        assert [row[2] for row in rows(answer)] == [2, 3, 0, 2]
        assert [row[3] for row in rows(answer)] == [1, 1, 0, 1]

    def test_empty_lists_are_none_of_them_and_none_is_all(self, opener: Opener) -> None:
        transport = opener()
        begin(transport)
        assert [row[2] for row in rows(advance(transport, 1.0, [], resting=[]))] == [1] * N
        assert [row[2] for row in rows(advance(transport, 1.0, None, resting=()))] == [2] * N
        assert [row[2] for row in rows(begin(transport, None))] == [0] * N
        assert [row[2] for row in rows(advance(transport, 1.0, np.arange(2)))] == [0, 0, 1, 1]
        assert [row[2] for row in rows(advance(transport, 1.0, range(N)))] == [0] * N
        assert [row[2] for row in rows(begin(transport, tuple(range(N))))] == [0] * N

    def test_seeds_and_options_go_with_their_env(self, opener: Opener) -> None:
        transport = opener()
        begin(transport)
        answer = begin(transport, [2, 0], [7, None], [None, {"level": "ü|;\n"}])
        self.seeds(answer, [None, None, 7, None])
        answer = begin(transport, [3], np.array([2**24]), [{}])
        self.seeds(answer, [None, None, 7, 2**24])
        answer = begin(transport)
        self.seeds(answer, [None] * N)
        assert not {7, 2**24} & {row[1] for row in rows(answer)}  # those of before do not come again

    def test_a_mask_is_that_of_the_state_that_it_comes_with(self, opener: Opener) -> None:
        transport = opener(MaskedWalk)
        assert begin(transport, None, [2] * N).masks.tolist() == [[1, 1, 0]] * N  # five steps
        assert advance(transport).masks.tolist() == [[1, 0, 1]] * N
        actions = ones(2)
        actions[1] = np.nan
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # nobody looks at the numbers of an env that begins anew
            assert advance(transport, actions, [1]).masks.tolist() == [[1, 1, 0]] * N
        assert advance(transport, 0.0).masks.tolist() == [[1, 0, 1]] * N

    # -- what is refused costs nothing

    def test_a_request_that_cannot_be_is_refused_and_costs_nothing(self, opener: Opener) -> None:
        transport = opener()
        begin(transport)
        for wrong in ([N], [-1], [0, 0], [], [0.5], [0, N]):
            with pytest.raises(errors.ConfigurationError, match="cannot be reset"):
                transport.reset(wrong)
        for wrong in ([N], [-1], [0, 0], [0.5]):
            with pytest.raises(errors.ConfigurationError):
                transport.send_actions(ones(), wrong)
            with pytest.raises(errors.ConfigurationError):
                transport.send_actions(ones(), resting=wrong)
        for resets, resting in ((None, [0, 1, 2, 3]), ([0], [1, 0])):  # all of them rest; one begins anew and rests
            with pytest.raises(errors.ConfigurationError):
                transport.send_actions(ones(), resets, resting=resting)
        for wrong in (-1, 2**63, 0.5, "7"):
            with pytest.raises(errors.ConfigurationError, match="invalid seed"):
                transport.reset(None, [None, wrong, None, None])
        for wrong in ([1], [1] * (N + 1)):
            with pytest.raises(errors.ConfigurationError):
                transport.reset(None, wrong)
            with pytest.raises(errors.ConfigurationError):
                transport.reset(None, None, [{}] * len(wrong))
        for wrong in (object(), {1, 2}, float("nan")):
            with pytest.raises(errors.ConfigurationError, match="OPTIONS"):
                transport.reset([1, 3], None, [{}, {"a": wrong}])
        assert [row[2] for row in rows(advance(transport))] == [1] * N

    def test_an_action_that_cannot_be_is_refused_and_costs_nothing(self, opener: Opener) -> None:
        transport = opener()
        begin(transport)
        good = ones()
        for wrong in (good.astype(np.int32), good.astype(np.float64), good[:2], good.T, good.ravel(), None):
            for resets in (None, [1]):
                with pytest.raises(errors.ActionError, match=r"float32 \(4, 1\)"):
                    transport.send_actions(wrong, resets)
        with pytest.raises(errors.ActionError, match="contiguous"):
            transport.send_actions(np.zeros((N, 2), np.float32)[:, :1])
        for number in (float("nan"), float("inf"), -float("inf")):
            for env in (0, N - 1):
                spoilt = ones()
                spoilt[env] = number
                with pytest.raises(errors.ActionError, match="not a finite number") as caught:
                    transport.send_actions(spoilt)
                assert (caught.value.env_id, caught.value.fault) == (env, "policy")
        with pytest.raises(errors.UnexpectedMessage, match="nothing was asked"):
            transport.receive()
        assert [row[2] for row in rows(advance(transport))] == [1] * N
        # Of an env that is reset or rests anything may stand there.
        spoilt = ones()
        spoilt[[1, 2]] = np.nan
        assert [row[2] for row in rows(advance(transport, spoilt, [1], resting=[2]))] == [2, 0, 1, 2]

    def test_rows_are_awaited_while_a_request_is_under_way(self, opener: Opener) -> None:
        transport: Any = opener()
        assert transport.awaited_rows == 0
        for resting in ([], [1], [0, 3]):
            begin(transport)
            assert transport.awaited_rows == 0
            transport.send_actions(ones(), resting=resting)
            assert 0 < transport.awaited_rows <= N - len(resting)
            transport.receive()
            assert transport.awaited_rows == 0

    def test_one_request_at_a_time(self, opener: Opener) -> None:
        transport = opener()
        begin(transport)
        transport.send_actions(ones())
        for ask in (transport.reset, lambda: transport.send_actions(ones())):
            with pytest.raises(errors.UnexpectedMessage):
                ask()
        assert [row[2] for row in rows(transport.receive())] == [1] * N
        assert [row[2] for row in rows(advance(transport))] == [2] * N

    def test_an_engine_without_seeds_and_options_is_asked_for_none(self, opener: Opener) -> None:
        transport = opener(Quiet)
        begin(transport)
        with pytest.raises(errors.UnsupportedByEngine) as caught:
            transport.reset(None, [1] * N)
        assert caught.value.field == "SEED"
        with pytest.raises(errors.UnsupportedByEngine) as caught:
            transport.reset([0], None, [{"a": 1}])
        assert caught.value.field == "OPTIONS"
        begin(transport, None, [None] * N, [None] * N)  # none were given
        assert [row[2] for row in rows(advance(transport))] == [1] * N


class Parameters:
    """Of carriers that set parameters of the game with a reset."""

    def test_parameters_are_drawn_for_each_reset_and_given_ones_win(self, opener: Opener) -> None:
        transport = opener()
        transport.connect()
        drawn: list[int] = []

        def draw(env: int) -> Mapping[str, float] | None:
            drawn.append(env)
            if env == 3:
                return None
            return {"gravity": 1.0 + env}

        transport.draw_parameters = draw
        begin(transport)
        assert sorted(drawn) == [0, 1, 2, 3]
        assert gravities(transport) == pytest.approx([1, 2, 3, 9.8])
        drawn.clear()
        advance(transport, 1.0, [2, 1])
        assert sorted(drawn) == [1, 2]
        drawn.clear()
        transport.reset([0, 1], parameters={0: {"gravity": 0.5}})
        transport.receive()
        assert gravities(transport)[0] == pytest.approx(0.5)
        transport.draw_parameters = None
        begin(transport, [1])
        assert [row[2] for row in rows(transport.buffers)] == [0, 0, 0, 1]

    @pytest.mark.parametrize(
        ("values", "error", "said"),
        [
            ({"gravity": 20.5}, errors.ConfigurationError, "gravity.*0 to 20.*20.5"),
            ({"gravity": float("nan")}, errors.ConfigurationError, "gravity.*0 to 20.*nan"),
            ({"mass": 1.0}, errors.UnsupportedByEngine, "no such parameter.*expected gravity; got mass"),
            ({"gravity": "heavy"}, errors.ConfigurationError, "gravity.*0 to 20.*heavy"),
        ],
    )
    def test_a_parameter_that_the_game_cannot_take_is_refused_before_anything_is_sent(
        self, opener: Opener, values: Mapping[str, Any], error: type[errors.UeRlError], said: str
    ) -> None:
        transport: Any = opener()
        begin(transport)
        drawn: list[Mapping[str, Any]] = [{"gravity": 1.0}] * (N - 1) + [values]
        transport.draw_parameters = lambda env: drawn[env]
        with pytest.raises(error, match=f"(?s){said}") as caught:
            transport.reset()
        assert (caught.value.env_id, caught.value.field) == (3, "SET")
        with pytest.raises(error, match=said):
            transport.send_actions(ones(), [1, 3])
        assert gravities(transport) == pytest.approx([9.8] * N)
        drawn[3] = {"gravity": 2.0}
        assert [row[2] for row in rows(advance(transport, resets=[3]))] == [1, 1, 1, 0]
        assert gravities(transport) == pytest.approx([9.8, 9.8, 9.8, 2.0])

    def test_a_refused_request_draws_nothing(self, opener: Opener) -> None:
        transport = opener()
        transport.connect()
        randomizer = randomize(transport, {"gravity": (1, 2)}, seed=1)
        assert randomizer is not None
        expected = Randomizer(transport.spec, {"gravity": (1, 2)}, 1)
        for env in range(N):
            expected(env)
        begin(transport)
        wrong = ones()
        wrong[0] = np.nan
        for _ in range(3):
            for actions in (wrong, np.ones((N, 2), np.float32), np.ones((N, 1))):
                with pytest.raises(errors.ActionError):
                    transport.send_actions(actions, [1, 3])
            with pytest.raises(errors.ConfigurationError):
                transport.send_actions(wrong, [1, N])
            with pytest.raises(errors.ConfigurationError, match="OPTIONS"):
                transport.reset([1, 3], options=[{}, {"a": object()}])
            with pytest.raises(errors.ConfigurationError, match="seed"):
                transport.reset([1, 3], seeds=[1, -1])
        assert randomizer.values == expected.values
        assert randomizer.generators() == expected.generators()
        wrong[0], wrong[1] = 1, np.nan  # of an env that is reset anything may stand there
        assert [row[2] for row in rows(advance(transport, wrong, [1, 3]))] == [1, 0, 1, 0]
        expected(1)
        expected(3)
        assert gravities(transport) == pytest.approx([expected.values[env]["gravity"] for env in range(N)])
