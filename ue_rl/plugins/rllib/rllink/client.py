"""RLlinkClient: N envs of an engine play by the policy of an RLlib learner, and send it their episodes.

The loop: ask for weights; take steps of all envs until there are as many as RLlib wants; send them in one message and
wait for new weights. RLlib learns while the envs stand still, as on-policy algorithms need it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from ue_rl.plugins.rllib.rllink.frames import MAX_BODY
from ue_rl.plugins.rllib.rllink.link import DEFAULT_PORT, PAUSE, RLlinkConnection, open_link
from ue_rl.plugins.rllib.rllink.messages import (
    EPISODES_AND_GET_STATE,
    GET_CONFIG,
    GET_STATE,
    Answer,
    ServerConfig,
    ServerState,
)
from ue_rl.plugins.rllib.rllink.player import CollectedSample, SampleCollector
from ue_rl.plugins.rllib.rllink.policy import RLlinkPolicy
from ue_rl.protocol.transport import Transport
from ue_rl.system.attempts import LEAST, next_attempt
from ue_rl.system.errors import (
    ConfigurationError,
    LearnerDisconnected,
    LearnerTimeout,
    LearnerUnreachable,
    MalformedMessage,
    UnsupportedByEngine,
)

_MOST_LOST = 5  # messages in a row that a server takes and goes away: what is sent may be why
_log = logging.getLogger("ue_rl.plugins.rllib.rllink")
_Kind = TypeVar("_Kind")


class RLlinkClient:
    """Plays, sends, waits; again and again.

    Args:
        transport: to the engine, connected or not; it is closed by whoever made it.
        host, port: of RLlib's server. dialect, timeout, wait, pause: see `open_link`.
        reconnect: seconds to wait for the server to come back when it went away; 0: it is an error at once.
        said: what wins over the server's config, where it is not None.
        seed: of the actions' draws and, where the engine takes seeds, of each env's first episode; None: any.

    Attributes:
        config: the server's, with the user's words in it; None before `connect`.
        policy: the one that plays now.
    """

    def __init__(
        self,
        transport: Transport,
        host: str = "127.0.0.1",
        port: int = DEFAULT_PORT,
        *,
        dialect: str = "auto",
        timeout: float = 60.0,
        wait: float = 0.0,
        reconnect: float = 0.0,
        said: ServerConfig | None = None,
        seed: int | None = None,
        pause: float = PAUSE,
    ) -> None:
        self._transport = transport
        self._address = (host, port)
        self._dialect = dialect
        self._timeout = timeout
        self._wait = wait
        self._pause = pause
        self._reconnect = reconnect
        if not said:
            said = ServerConfig()
        self._said = said
        self._seed = seed
        self._link: RLlinkConnection | None = None
        self._player: SampleCollector | None = None
        self._wanted = self._first = 0  # env-steps of a message, and of the first one to a server (0: it was sent)
        self.config: ServerConfig | None = None
        self.policy: RLlinkPolicy | None = None

    # -- life

    def connect(self) -> None:
        """Connects to the engine and to the server, and gets the first weights.

        Raises:
            UnsupportedByEngine: the engine has images or agents, or is not one row of numbers. UnsupportedNetwork: the
            server's policy cannot be rebuilt here. ConfigurationError: the server learns by IMPALA or APPO; or it does
            not say how many steps it wants, and no flag does. Also what `open_link` and Transport.connect raise.
        """
        spec = self._transport.connect()
        if spec.groups or spec.image is not None or spec.obs_space is not None:
            field = "OBS_SPACE"
            if spec.groups:
                field = "AGENTS"
            raise UnsupportedByEngine(
                "an RLlink client here plays engines with plain rows of numbers",
                fault="engine",
                field=field,
                expected="one row of numbers for each env",
                cure="use RLlib's own env runner with ue_rl.plugins.rllib, which takes every space",
            )
        self._meet(self._wait, self._timeout)

    def run(
        self,
        steps: int | None = None,
        samples: int | None = None,
        on_sample: Callable[[CollectedSample], bool | None] | None = None,
    ) -> None:
        """Plays until RLlib has learnt from so many env-steps, or samples; None: for ever.

        What was not answered before the connection broke does not count, and no episode goes on behind the break:
        nobody knows whether its parts were taken. RLlib counts an episode whose beginning it has not seen as a short
        one, and its replay buffers stop at one that has a gap; so every env is reset, and begins a new one.

        Args:
            on_sample: called after each message was answered; True ends the run.

        Raises:
            LearnerTimeout, LearnerDisconnected: the server, after `reconnect` seconds, or where it came back five
            times and answered none. UnsupportedNetwork: its layers
            have changed to what cannot be rebuilt. ActionError: its numbers are not finite. Also what Transport.receive
            raises.
        """
        if self._link is None:
            self.connect()
        if self._player is None:
            self._player = SampleCollector(self._transport, self._seed)
        sent = 0
        done = 0
        lost_in_a_row = 0
        while (steps is None or sent < steps) and (samples is None or done < samples):
            assert self._link is not None
            assert self.policy is not None
            count = self._first
            if not count:
                count = self._wanted
            sample = self._player.play(self.policy, count)
            try:
                self._take(EPISODES_AND_GET_STATE, self._link.send_episodes(sample.chunks))
            except (LearnerDisconnected, LearnerUnreachable) as error:
                lost_in_a_row += 1
                if not self._reconnect or lost_in_a_row > _MOST_LOST:
                    raise
                lost = f"{sample.steps} env-steps are lost"
                _log.warning("%s; %s; dialling again for %g s", error.plain(), lost, self._reconnect)
                self._meet_again(error)
                self._player.begin_anew()
                continue
            self._first = lost_in_a_row = 0
            sent = sent + sample.steps
            done = done + 1
            if on_sample is not None and on_sample(sample):
                return

    def close(self) -> None:
        """Ends the session with the server; idempotent. The transport stays as it is."""
        if self._link is not None:
            self._link.close()
            self._link = None

    def __enter__(self) -> RLlinkClient:
        self.connect()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- the server

    def _meet(self, wait: float, timeout: float) -> None:
        """Connects, waiting `wait` seconds until somebody listens and `timeout` for each answer."""
        host, port = self._address
        link = open_link(host, port, timeout=timeout, dialect=self._dialect, wait=wait, pause=self._pause)
        try:
            self._dialect = link.dialect.name  # found out once
            self.config = _as(ServerConfig, GET_CONFIG, link.ask(GET_CONFIG)).under(self._said)
            if self.config.asynchronous:
                raise ConfigurationError(
                    "RLlib's IMPALA and APPO learn from several samples at a time, and answer none that is waited for",
                    fault="server",
                    field="algorithm",
                    expected="PPO or SAC",
                    got=self.config.algorithm,
                    cure="learn by PPO or SAC, or with ue_rl.plugins.rllib in RLlib's own env runners",
                )
            if self.config.steps_per_sample:
                self._wanted = self.config.steps_per_sample
            else:
                self._wanted = 0
            if not self._wanted:
                what = "the server does not say how many steps it wants at a time"
                cure = "say it: --steps-per-sample, RLlib's train_batch_size_per_learner / num_env_runners"
                raise ConfigurationError(what, field="steps_per_sample", cure=cure)
            least = self.config.steps_before_learning
            if not least:
                least = 0
            self._first = max(self._wanted, least)
            most = MAX_BODY // (4 * self._transport.spec.obs_size + 8)  # bytes: an observation, its reward and logp
            if self._first > most:
                raise ConfigurationError(
                    "RLlib wants more env-steps at a time than a message holds",
                    field="steps_per_sample",
                    expected=f"{most} at most",
                    got=self._first,
                    cure="lower its train_batch_size_per_learner",
                )
            self._take(GET_STATE, link.ask(GET_STATE))
        except BaseException:
            link.close()
            raise
        link.timeout = self._timeout
        self._link = link

    def _meet_again(self, lost: LearnerDisconnected | LearnerUnreachable) -> None:
        self.close()
        give_up = time.monotonic() + self._reconnect
        left = max(self._reconnect, LEAST)
        while True:
            try:
                self._meet(left, min(self._timeout, left))
                return
            except (LearnerDisconnected, LearnerUnreachable, LearnerTimeout) as error:
                left = next_attempt(give_up)
                if not left:
                    raise error from lost

    def _take(self, what: str, answer: Answer) -> None:
        """New weights."""
        assert self.config is not None
        self.policy = RLlinkPolicy.of(_as(ServerState, what, answer), self.config, self._transport.spec)


def _as(kind: type[_Kind], what: str, answer: Answer) -> _Kind:
    if isinstance(answer, kind):
        return answer
    message = f"RLlib answered {what} with something else"
    got = type(answer).__name__
    raise MalformedMessage(message, fault="server", field="type", got=got)
