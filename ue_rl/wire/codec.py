"""Codec(spec): lines of text <-> rows of StepBuffers and ActionBatch, for both sides. No state, no I/O.

The grammar is docs/protocol.md; the loops are kernels_pure.py and _kernels.c; the handshake is handshake.py. This file
chooses the message form, turns kernel failures into named errors, and reads the percent-encoded JSON of
INFO and OPTIONS and the settings of SET. It never repairs: a row is exactly right or it raises.

A row is an env's or, where the engine has agents, an agent's: ue_rl.spec.EnvSpec.groups.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, unquote_to_bytes

import numpy as np
from numpy.typing import NDArray

from ue_rl.buffers import ActionBatch, Resets, StepBuffers
from ue_rl.compiled import load, name_of
from ue_rl.errors import (
    ActionError,
    ConfigurationError,
    MalformedMessage,
    NonFiniteValue,
    ProtocolError,
    RepeatedEnv,
    UeRlError,
    UnknownEnv,
    WrongCount,
    shorten,
)
from ue_rl.json_text import json_object, json_text
from ue_rl.space_tree import choices
from ue_rl.spec import EnvSpec, EnvType
from ue_rl.wire import kernels_pure as k
from ue_rl.wire.notices import ended_by
from ue_rl.wire.settings import read_settings, settings_text

__all__ = ["MAX_LINE", "Codec", "line_limit"]

MAX_LINE = 2**30  # bytes, whatever a session's sizes are

_FORMS = {EnvType.MULTI: k.FORM_MULTI, EnvType.SINGLE: k.FORM_SINGLE, EnvType.RLBASE: k.FORM_RLBASE}
_FIRST = np.zeros(1, np.intp)  # the env ids of a line of one env
_FIRST.flags.writeable = False
_ENV = re.compile(rb"(?:^|[;|])\s*ENV\s*=\s*(\d{1,9})\s*(?:;|$|\|)", re.IGNORECASE)
_AGENT = re.compile(rb"(?:^|[;|])\s*AGENT\s*=\s*(\d{1,9})\s*(?:;|$|\|)", re.IGNORECASE)
_NAN_CURE = "look for a division by zero or an unset value in the {who}"
_KIND: dict[int, tuple[type[ProtocolError], str]] = {
    k.BAD_NUMBER: (MalformedMessage, "a number was expected"),
    k.WRONG_COUNT: (WrongCount, "a vector has the wrong number of numbers"),
    k.NON_FINITE: (NonFiniteValue, "a value is NaN, infinite or beyond float32"),
    k.UNKNOWN_ENV: (UnknownEnv, "the env id does not exist"),
    k.REPEATED_ENV: (RepeatedEnv, "an env answered that was not asked, or answered twice"),
    k.MISSING_FIELD: (MalformedMessage, "a required field is missing"),
    k.REPEATED_FIELD: (MalformedMessage, "a field comes twice in one row"),
    k.BAD_FLAG: (MalformedMessage, "a flag is neither 0 nor 1"),
    k.NOT_A_FIELD: (MalformedMessage, "the text is not a field of the protocol"),
    k.TRUNC_WITHOUT_DONE: (MalformedMessage, "TRUNC=1 came with DONE=0"),
    k.RUN_TOGETHER: (
        MalformedMessage,
        "the last observation and the reward run together and cannot be told apart",
    ),
    k.BAD_INTEGER: (MalformedMessage, "a non-negative integer was expected"),
    k.OTHER_ENV: (UnknownEnv, "the line came on another env's socket"),
    k.UNKNOWN_AGENT: (UnknownEnv, "the env has no such agent"),
    k.RESET_OF_AGENT: (MalformedMessage, "an agent cannot be reset alone"),
    k.NO_CHOICE: (MalformedMessage, "an action mask leaves a number without a choice"),
}


def line_limit(spec: EnvSpec) -> int:
    """The longest line, in bytes, that a reader must take (docs/protocol.md, section 9)."""
    numbers = spec.num_rows * max(spec.obs_size + 1, spec.act_size)
    room = 65_536 if spec.features & {"INFO", "OPTIONS"} or spec.parameters else 64
    return min(1024 + 48 * numbers + (room + spec.mask_size) * spec.num_rows, MAX_LINE)


class Codec:
    """Reads and writes the messages of one session.

    Args:
        spec: the session's handshake.
        compiled: None takes the compiled loops where they exist, True insists, False takes the pure ones.

    Raises:
        ConfigurationError: compiled=True where there are no compiled loops.
    """

    def __init__(self, spec: EnvSpec, *, compiled: bool | None = None) -> None:
        module = load("kernels", compiled)
        self.spec = spec
        self.kernels = name_of(module)
        self.max_line = line_limit(spec)
        self.form = _FORMS[spec.env_type]
        self._state_form = self.form + (k.AGENTS if spec.groups else 0)
        self._request_form = self._state_form + (k.SETTINGS if spec.parameters else 0)
        self._layout, self._act_layout = _layouts(spec)  # None where the handshake's sizes say all
        self._masked = spec.mask_size > 0
        self._decode_states = module.decode_states
        self._decode_state_lines: Any = getattr(module, "decode_state_lines", None)
        self._decode_requests = module.decode_requests
        self._encode_actions = module.encode_actions
        self._encode_states = module.encode_states
        self._all = np.arange(spec.num_rows, dtype=np.int32)
        self._spans = np.zeros((spec.num_rows, 2), np.int32)
        self._ask_spans = np.zeros((spec.num_rows, 4), np.int32)
        self._reset_all: bytes | None = None
        # Rewards, flags and the envs still to come, for rows of observations alone; made when first needed.
        self._unused: tuple[NDArray[np.float32], NDArray[np.uint8], NDArray[np.uint8]] | None = None

    # -- the trainer's side

    def encode_actions(
        self, actions: NDArray[np.float32], env_ids: Sequence[int] | NDArray[np.int32] | None = None
    ) -> bytes:
        """One line asking the rows `env_ids` (None: all) for a step.

        Args:
            actions: float32 [num_rows, act_size], C-contiguous; rows that are not asked are ignored.

        Raises:
            ActionError: an action is NaN or infinite.
        """
        line = self._encode_actions(self._ids(env_ids), actions, self._act_layout, self._state_form, False)
        if isinstance(line, bytes):
            return line
        raise nonfinite_action(actions, line[1], line[4], self.spec)

    def encode_action_lines(self, actions: NDArray[np.float32]) -> list[bytes]:
        """One line per env for per-env sockets, in env order; otherwise as `encode_actions`."""
        lines = self._encode_actions(self._all, actions, None, self.form, True)
        if isinstance(lines, list):
            return lines
        raise nonfinite_action(actions, lines[1], lines[4], self.spec)

    def encode_resets(
        self,
        env_ids: Sequence[int] | None = None,
        seeds: Sequence[int | None] | None = None,
        options: Sequence[Mapping[str, Any] | None] | None = None,
        parameters: Sequence[Mapping[str, float] | None] | None = None,
    ) -> bytes:
        """One line asking `env_ids` (None: all) for a new episode; `seeds`, `options` and `parameters` align with them.

        Raises:
            ConfigurationError: an option is no JSON, or a parameter is none that the engine has.
        """
        if env_ids is None and seeds is None and options is None and parameters is None:
            if self._reset_all is None:
                self._reset_all = b"||".join(map(self._reset_row, range(self.spec.num_envs))) + b"\n"
            return self._reset_all
        ids = range(self.spec.num_envs) if env_ids is None else env_ids
        given = [seeds, options, parameters]
        rows = [
            self._reset_row(env, *(None if values is None else values[n] for values in given))  # type: ignore[arg-type]
            for n, env in enumerate(ids)
        ]
        return b"||".join(rows) + b"\n"

    def encode_reset_line(
        self, seed: int | None = None, options: Mapping[str, Any] | None = None, env_id: int | None = None,
        parameters: Mapping[str, float] | None = None,
    ) -> bytes:  # fmt: skip
        """One env's reset for its own socket: no ENV. `env_id`: for errors only."""
        return self._reset_row(env_id, seed, options, parameters, named=False) + b"\n"

    def encode_request(self, actions: NDArray[np.float32] | None, resets: Resets | None, buffers: StepBuffers) -> bytes:
        """One line for a step, for resets, or for both: envs in `resets` begin a new episode, the others take a step.

        Args:
            actions: float32 [num_rows, act_size]; None: nobody takes a step.
            buffers: of the last answer; with agents, those that are there and whose episode is not over take the step.

        Raises:
            ActionError: an action is NaN or infinite. ConfigurationError: an option is no JSON.
        """
        if resets is None:
            assert actions is not None
            return self.encode_actions(actions, self._live(buffers) if self.spec.groups else None)
        line = self.encode_resets(resets.env_ids, resets.seeds, resets.options, resets.parameters)
        if actions is None:
            return line
        stepping = np.ones(self.spec.num_envs, np.bool_)
        stepping[np.asarray(resets.env_ids, np.intp)] = False
        asked = self._live(buffers, stepping) if self.spec.groups else np.flatnonzero(stepping).astype(np.int32)
        return self.encode_actions(actions, asked)[:-1] + b"||" + line if len(asked) else line

    def _live(self, buffers: StepBuffers, stepping: NDArray[np.bool_] | None = None) -> NDArray[np.int32]:
        """The rows of agents that can act (ue_rl.transport.live_agents), of envs that take a step."""
        live = (buffers.present != 0) & (buffers.dones == 0)
        if stepping is not None:
            live &= np.repeat(stepping, self.spec.agents_per_env)
        return np.flatnonzero(live).astype(np.int32)

    def decode_states(
        self,
        data: Any,
        buffers: StepBuffers,
        only_env: int | None = None,
        start: int = 0,
        end: int | None = None,
    ) -> int:
        """Reads one line of states, `data[start:end]`, into `buffers`; returns the number of envs that answered.

        Each row must be of an env whose `buffers.pending` is 1, and clears it. With agents, `pending` is 1 of an agent
        that must answer and 2 of one that may; all of an env's answer stands in one line: when it has been read none of
        its rows is pending any more, and `buffers.present` says who was there.

        Args:
            data: bytes-like; one line, with or without its line ending.
            only_env: the env whose own socket the line came on; None on a shared channel.

        Raises:
            ProtocolError: the subclass says what is wrong; rows before the bad one have been written.
            EngineDisconnected: the engine ends the session instead, and says why.
        """
        start, end = _line(data, start, end)
        pending = buffers.pending.copy() if self.spec.groups else None
        rows: int | k.Failure = self._decode_states(
            data, buffers.obs, buffers.rewards, buffers.dones, buffers.truncated, buffers.pending, self._spans,
            buffers.masks if self._masked else None, self._layout,
            start, end, self._state_form, -1 if only_env is None else only_env,
        )  # fmt: skip
        if not isinstance(rows, int) or rows <= 0:
            rows = self._look_closer(rows, data, start, end, buffers)
        return rows if pending is None else self._end_answers(buffers, pending, data, start, end)

    def _end_answers(
        self, buffers: StepBuffers, before: NDArray[np.uint8], data: Any, start: int, end: int
    ) -> int:  # fmt: skip
        """Ends the answers of the envs in a line with agents; `before`: `pending` as it was before the line.

        Raises:
            MalformedMessage: an agent that acted is missing.
        """
        per_env = self.spec.agents_per_env
        pending = buffers.pending.reshape(-1, per_env)
        came = (before.reshape(-1, per_env) != 0) & (pending == 0)
        envs = np.flatnonzero(came.any(axis=1))
        missing = pending[envs] == 1
        if missing.any():
            at, agent = np.argwhere(missing)[0]
            raise MalformedMessage(
                f"an agent that acted is missing from its env's answer: {self.spec.agent_names[agent]}", fault="engine",
                env_id=int(envs[at]), field="AGENT", expected=f"AGENT={agent} in the line that answers for its env",
                got=bytes(data[start:end]),
                cure="put all agents of an env into one line; DONE=1 ends an agent's part in the episode",
            )  # fmt: skip
        buffers.present.reshape(-1, per_env)[envs] = came[envs]
        pending[envs] = 0
        return len(envs)

    def decode_state_lines(self, data: bytearray, stride: int, fill: NDArray[np.int32], buffers: StepBuffers) -> int:
        """Reads the lines of all env sockets at once (compiled kernels on POSIX only); otherwise as `decode_states`.

        Args:
            data: env i's line stands at `data[i * stride]` and has `fill[i]` bytes, newline included.
            fill: int32 [num_envs]; 0 where nothing came.
        """
        rows: int | k.Failure = self._decode_state_lines(
            data, buffers.obs, buffers.rewards, buffers.dones, buffers.truncated, buffers.pending, self._spans,
            buffers.masks if self._masked else None, self._layout, stride, fill, self.form,
        )  # fmt: skip
        if isinstance(rows, int) and rows > 0:
            return rows
        env = 0 if isinstance(rows, int) else rows[3] // stride
        line = env * stride
        return self._look_closer(rows, data, line, line + int(fill[env]), buffers)

    # -- the engine's side

    def encode_states(
        self,
        obs: NDArray[np.float32],
        rewards: NDArray[np.float32],
        dones: NDArray[np.uint8],
        truncated: NDArray[np.uint8] | None = None,
        env_ids: Sequence[int] | NDArray[np.int32] | None = None,
        infos: Mapping[int, Mapping[str, Any]] | None = None,
        masks: NDArray[np.uint8] | None = None,
    ) -> bytes:
        """One line with the states of the rows `env_ids` (None: all).

        Args:
            obs: float32 [num_rows, obs_size]. rewards: float32 [num_rows]. dones, truncated: uint8 [num_rows].
            infos: row -> JSON-able dict, sent as INFO.
            masks: uint8 [num_rows, mask_size], sent as MASK where a choice is not legal; None: all are.

        Raises:
            NonFiniteValue: the game produced NaN or infinity.
        """
        if truncated is None:
            truncated = np.zeros(self.spec.num_rows, np.uint8)
        ids = self._ids(env_ids)
        if infos and self.form != k.FORM_RLBASE:
            return self._encode_with_infos(obs, rewards, dones, truncated, ids, infos, masks)
        line = self._encode_states(
            ids, obs, rewards, dones, truncated, masks if self._masked else None, self._layout, self._state_form
        )
        if isinstance(line, bytes):
            return line
        _, row, field, _, index = line
        raise NonFiniteValue(
            f"the game produced a value that is not a finite number{_agent(self.spec, row)}", fault="engine",
            env_id=row // self.spec.agents_per_env, field=k.FIELDS[field], expected="finite float32",
            got=f"{obs[row, index] if field == k.F_OBS else rewards[row]} at index {index}",
            cure=_NAN_CURE.format(who="game's state or reward"),
        )  # fmt: skip

    def decode_observations(
        self, data: Any, obs: NDArray[np.float32], resets: NDArray[np.uint8], start: int = 0, end: int | None = None,
        masks: NDArray[np.uint8] | None = None,
    ) -> NDArray[np.intp]:  # fmt: skip
        """Reads one line of observations alone, `OBS=..[;ENV=i][;RESET=1]` joined by `||`, in all spellings of states.

        Args:
            obs: float32 [num_envs, obs_size]; row `env` receives that env's observation.
            resets: uint8 [num_envs]; receives 1 where RESET=1 came, else 0.
            masks: uint8 [num_envs, mask_size]; receives MASK, ones where none came. None: MASK is not read.

        Returns:
            The env ids in the order of the rows, intp [n]. Of one env ENV may be left out. Other fields are ignored.

        Raises:
            ProtocolError: the subclass says what is wrong.
        """
        start, end = _line(data, start, end)
        n, spans = self.spec.num_envs, self._spans
        if self._unused is None:
            self._unused = np.zeros(n, np.float32), np.zeros(n, np.uint8), np.zeros(n, np.uint8)
        rewards, truncated, pending = self._unused
        pending.fill(1)
        form = (k.FORM_SINGLE if n == 1 else k.FORM_MULTI) + k.OBSERVATIONS
        rows = self._decode_states(
            data, obs, rewards, resets, truncated, pending, spans, masks, self._layout, start, end, form, -1
        )
        if isinstance(rows, tuple):
            raise self._refusal(rows, data, start, end, "engine")
        if n == 1:
            return _FIRST
        envs = np.flatnonzero(pending == 0)
        return envs[np.argsort(spans[envs, 0])]

    def decode_requests(
        self,
        data: Any,
        batch: ActionBatch,
        only_env: int | None = None,
        start: int = 0,
        end: int | None = None,
    ) -> int:
        """Reads one line of asks into `batch`; returns the number of rows.

        Args:
            only_env: the env a row without ENV is for (per-env sockets).

        Raises:
            ProtocolError: the subclass says what is wrong; RepeatedEnv where an env is still being asked. SET must name
                parameters of the handshake; whether a value is in its range is the trainer's care.
        """
        start, end = _line(data, start, end)
        rows: int | k.Failure = self._decode_requests(
            data, batch.actions, batch.command, batch.seeds, self._ask_spans, self._act_layout,
            start, end, self._request_form, -1 if only_env is None else only_env,
        )  # fmt: skip
        if isinstance(rows, int) and rows > 0:
            return rows
        return self._look_closer(rows, data, start, end, batch)

    # -- helpers

    def _ids(self, env_ids: Sequence[int] | NDArray[np.int32] | None) -> NDArray[np.int32]:
        return self._all if env_ids is None else np.ascontiguousarray(env_ids, np.int32)

    def _reset_row(
        self, env: int | None, seed: int | None = None, options: Mapping[str, Any] | None = None,
        parameters: Mapping[str, float] | None = None, named: bool = True,
    ) -> bytes:  # fmt: skip
        if self.form == k.FORM_RLBASE:
            return b"RESET"
        text = "ACT=RESET"
        if named and self.form == k.FORM_MULTI:
            text += f";ENV={env}"
        if seed is not None:
            text += f";SEED={seed}"
        if options is not None:
            text += f";OPTIONS={quote(json_text(options, 'OPTIONS', env), safe='')}"
        if parameters:
            text += f";SET={settings_text(parameters)}"
            self._check_parameters(parameters, env)
        return text.encode()

    def _check_parameters(self, parameters: Mapping[str, float], env: int | None) -> None:
        """Raises ConfigurationError where the engine has no such parameter, or not with this value."""
        known = {parameter.name: parameter for parameter in self.spec.parameters}
        for name, value in parameters.items():
            if name not in known:
                raise ConfigurationError(
                    "the engine has no such parameter", env_id=env, field="SET",
                    expected=", ".join(known) or "none: it announced no PARAMS", got=name,
                )  # fmt: skip
            low, high = known[name].low, known[name].high
            if not low <= value <= high:
                raise ConfigurationError(
                    f"a parameter is outside its range: {name}", env_id=env, field="SET",
                    expected=f"{low:g} to {high:g}", got=value,
                )  # fmt: skip

    def _encode_with_infos(
        self,
        obs: NDArray[np.float32],
        rewards: NDArray[np.float32],
        dones: NDArray[np.uint8],
        truncated: NDArray[np.uint8],
        ids: NDArray[np.int32],
        infos: Mapping[int, Mapping[str, Any]],
        masks: NDArray[np.uint8] | None,
    ) -> bytes:
        rows = []
        for env in ids.tolist():
            row = self.encode_states(obs, rewards, dones, truncated, [env], None, masks)[:-1]
            if infos.get(env):
                row += b";INFO=" + quote(json_text(infos[env], "INFO", env), safe="").encode()
            rows.append(row)
        return b"||".join(rows) + b"\n"

    def _look_closer(
        self, rows: int | k.Failure, data: Any, start: int, end: int, into: StepBuffers | ActionBatch
    ) -> int:  # fmt: skip
        """For a decoder's result that is not the usual one: a failure, or rows with INFO, OPTIONS or SET."""
        asked = isinstance(into, ActionBatch)
        fault = "trainer" if asked else "engine"
        if isinstance(rows, tuple):
            raise self._refusal(rows, data, start, end, fault)
        spans = self._ask_spans if asked else self._spans
        places = spans.copy()
        spans[:] = 0  # or the next line's would be read from these places
        field, values = ("OPTIONS", into.options) if isinstance(into, ActionBatch) else ("INFO", into.infos)
        for row in np.flatnonzero(places[:, 1]).tolist():
            raw = bytes(data[places[row, 0] : places[row, 1]]).strip()
            value = json_object(unquote_to_bytes(raw))
            if value is None:
                raise MalformedMessage(
                    "the value is not a percent-encoded JSON object", fault=fault, field=field, got=raw,
                    env_id=row // self.spec.agents_per_env,
                )  # fmt: skip
            values[row] = value
        if isinstance(into, ActionBatch):
            for row in np.flatnonzero(places[:, 3]).tolist():
                if into.command[row] == into.RESET:
                    into.parameters[row] = self._parameters(bytes(data[places[row, 2] : places[row, 3]]), row)
        return -rows

    def _parameters(self, raw: bytes, row: int) -> dict[str, float]:
        """The value of SET.

        Raises:
            ProtocolError: it cannot be read, or names no parameter of the handshake.
        """
        env = row // self.spec.agents_per_env
        settings = read_settings(raw.decode("ascii", "backslashreplace"), "SET", "trainer", env)
        names = [parameter.name for parameter in self.spec.parameters]
        for name in settings:
            if name not in names:
                raise MalformedMessage(
                    "there is no such parameter", fault="trainer", env_id=env, field="SET", expected=", ".join(names),
                    got=name,
                )  # fmt: skip
        return settings

    def _refusal(self, failure: k.Failure, data: Any, start: int, end: int, fault: str) -> UeRlError:
        """The error for a decoder's failure in the line data[start:end]."""
        code, env, field_id, at, got = failure
        self._spans[:] = self._ask_spans[:] = 0
        kind, message = _KIND[code]
        field = k.FIELDS[field_id]
        line = bytes(data[start:end])
        if fault == "engine" and (ended := ended_by(line, env if env >= 0 else None)):
            return ended
        if env < 0 and self.form == k.FORM_MULTI:
            env = self._named(_ENV, line, at - start, self.spec.num_envs)
        agent = self._named(_AGENT, line, at - start, self.spec.agents_per_env) if self.spec.groups else -1
        expected: str | None = None
        cure: str | None = None
        if code == k.WRONG_COUNT:
            expected, cure = self._wanted(field, max(agent, 0))
            message += f": {got} came" if got >= 0 else ""
        elif code == k.NON_FINITE:
            cure = _NAN_CURE.format(who="game's state or reward" if fault == "engine" else "policy")
        elif code == k.UNKNOWN_ENV:
            expected = f"0 to {self.spec.num_envs - 1}"
            env, message = -1, f"{message}: {env}"
        elif code == k.OTHER_ENV:
            expected, message = f"ENV={env} or no ENV", f"{message}: it names env {got}"
            cure = "an env socket's id is the order in which it was accepted"
        elif code == k.RUN_TOGETHER:
            cure = "end the game's state string with ';'"
        elif code == k.UNKNOWN_AGENT:
            expected, message = f"0 to {self.spec.agents_per_env - 1}", f"{message}: {got}"
        elif code == k.RESET_OF_AGENT:
            expected = "ACT=RESET without AGENT: it is for the whole env"
        elif code == k.NO_CHOICE:
            expected, message = "a choice at least for each number, unless DONE=1", f"{message}: number {got}"
        if code == k.REPEATED_ENV and fault == "trainer":
            message = "an env was asked again before it had answered"
        elif code == k.REPEATED_ENV and self.spec.groups:
            message = "an agent answered whose answer was not awaited, or answered twice"
        if agent >= 0:
            message += f" (agent {self.spec.agent_names[agent]})"
        return kind(
            message,
            fault=fault,
            env_id=env if env >= 0 else None,
            field=field,
            expected=expected,
            got=_around(line, at - start),
            cure=cure,
        )

    def _named(self, key: re.Pattern[bytes], line: bytes, at: int, count: int) -> int:
        """The env or agent that the row around `at` names, -1 for none: in a row, it stands behind what was refused."""
        end = line.find(b"||", at)
        found = key.search(line, line.rfind(b"||", 0, at) + 1, len(line) if end < 0 else end)
        number = int(found.group(1)) if found else -1
        return number if number < count else -1

    def _wanted(self, field: str, agent: int) -> tuple[str, str]:
        """How many numbers a field should have had, and what to do about it."""
        spec = self.spec
        if field == "MASK":
            flags = spec.mask_size if self._layout is None else int(self._layout[agent if spec.groups else 0, 1])
            return f"{flags} flags", "MASK has one flag for each choice of each number of ACT_SPACE"
        layout, size = (self._layout, spec.obs_size) if field == "OBS" else (self._act_layout, spec.act_size)
        count = int(layout[agent, 0]) if spec.groups and layout is not None else size
        return f"{count} numbers", "the handshake's OBS and ACT must be what the game sends and takes"


def _layouts(spec: EnvSpec) -> tuple[NDArray[np.int32] | None, NDArray[np.int32] | None]:
    """What the kernels are told of states' and of requests' rows; None where there is nothing to tell."""
    masked = spec.mask_size > 0
    if not spec.groups and not masked:
        return None, None
    ones = [group.spec for group in spec.groups for _ in range(group.count)] or [spec]
    counts = {id(one): _choices(one) for one in ones} if masked else {}
    width = max((len(found) for found in counts.values()), default=0)
    states, requests = np.zeros((len(ones), 2 + width), np.int32), np.zeros((len(ones), 2), np.int32)
    for row, one in enumerate(ones):
        states[row, 0], requests[row, 0] = one.obs_size, one.act_size
        if masked:
            found = counts[id(one)]
            states[row, 1], states[row, 2 : 2 + len(found)] = found.sum(), found
    return states, requests if spec.groups else None


def _choices(one: EnvSpec) -> NDArray[np.int64]:
    """How many choices each number of an action has that has some."""
    action = one.action_spec
    counts = np.array(action.counts, np.int64) if action.space is None else choices(action.space)
    return counts[counts > 0]


def _agent(spec: EnvSpec, row: int) -> str:
    """Which agent a row is, for an error; "" without agents."""
    return f" (agent {spec.agent_names[row % spec.agents_per_env]})" if spec.groups else ""


def _line(data: Any, start: int, end: int | None) -> tuple[int, int]:
    end = len(data) if end is None else end
    if end > start and data[end - 1] == 0x0A:
        end -= 1
    return start, end


def _around(line: bytes, at: int, before: int = 40) -> str:
    """The line cut to the part that matters, with where it stands."""
    if at <= before:
        return shorten(line)
    return f"...{shorten(line[at - before :])} (from byte {at - before} of {len(line)})"


def nonfinite_action(actions: NDArray[np.float32], row: int, index: int, spec: EnvSpec | None = None) -> ActionError:
    """The error for number `index` of a row of actions float32 [num_rows, act_size]. `spec`: None without agents."""
    of = "" if spec is None else _agent(spec, row)
    return ActionError(
        f"the policy gave an action that is not a finite number{of}", fault="policy",
        env_id=row if spec is None else row // spec.agents_per_env, field="ACT",
        expected="finite float32", got=f"{actions[row, index]} at index {index}",
        cure="training has diverged, or an observation was not normalised: lower the learning rate, "
        "wrap the env in VecNormalize, look for huge observations",
    )  # fmt: skip
