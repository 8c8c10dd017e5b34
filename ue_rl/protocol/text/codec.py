"""Codec(spec): lines of text <-> rows of StepBuffers and ActionBatch, for both sides. No state, no I/O.

The grammar is docs/protocol.md; the loops are kernels_pure.py and _kernels.c; the handshake is handshake.py. This file
chooses the message form, turns kernel failures into named errors, and reads the percent-encoded JSON of
INFO and OPTIONS and the settings of SET. It never repairs: a row is exactly right or it raises.

A row is an env's or, where the engine has agents, an agent's: ue_rl.protocol.spec.EnvSpec.groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, unquote_to_bytes

import numpy as np
from numpy.typing import NDArray

from ue_rl.protocol.buffers import ActionBatch, Resets, StepBuffers
from ue_rl.protocol.spec import EnvSpec, EnvType
from ue_rl.protocol.text import kernel_forms as k
from ue_rl.protocol.text.agent_rows import end_answers, layouts, live_rows
from ue_rl.protocol.text.kernels_writing import end_line
from ue_rl.protocol.text.limits import line_limit
from ue_rl.protocol.text.refusals import nonfinite_action, nonfinite_state, refusal
from ue_rl.protocol.text.resets import reset_row
from ue_rl.protocol.text.settings import read_known
from ue_rl.system.compiled import load, name_of
from ue_rl.system.errors import MalformedMessage
from ue_rl.system.json_text import json_object, json_text

_FORMS = {EnvType.MULTI: k.FORM_MULTI, EnvType.SINGLE: k.FORM_SINGLE, EnvType.RLBASE: k.FORM_RLBASE}
_FIRST = np.zeros(1, np.intp)  # the env ids of a line of one env
_FIRST.flags.writeable = False


class Codec:
    """Reads and writes the messages of one session.

    Args:
        spec: the session's handshake.
        compiled: None takes the compiled loops where they exist, True insists, False takes the pure ones.
        kernels: loops of one's own in their place, with the functions of kernels_pure.

    Attributes:
        numbered: requests and answers have numbers (FEATURES=SEQ; RLBASE has none).

    Raises:
        ConfigurationError: compiled=True where there are no compiled loops.
    """

    def __init__(self, spec: EnvSpec, *, compiled: bool | None = None, kernels: Any = None) -> None:
        if kernels is None:
            module = load("kernels", compiled)
        else:
            module = kernels
        self.spec = spec
        self.kernels = name_of(module)
        self.max_line = line_limit(spec)
        self.max_env_line = line_limit(spec, rows=spec.agents_per_env)  # of a line on one env's own socket
        self.form = _FORMS[spec.env_type]
        self.numbered = "SEQ" in spec.features and spec.env_type is not EnvType.RLBASE
        agents = 0
        if spec.groups:
            agents = k.AGENTS
        numbered = 0
        if self.numbered:
            numbered = k.NUMBERED
        self._state_form = self.form + agents + numbered
        settings = 0
        if spec.parameters:
            settings = k.SETTINGS
        self._request_form = self._state_form + settings
        self._layout, self._act_layout = layouts(spec)  # None where the handshake's sizes say all
        self._masked = spec.mask_size > 0
        self._agents = bool(spec.groups)
        self._decode_states = module.decode_states
        self._decode_state_lines: Any = getattr(module, "decode_state_lines", None)
        self._decode_requests = module.decode_requests
        self._encode_actions = module.encode_actions
        self._encode_states = module.encode_states
        self.find_number = module.find_number  # (data, start, end) -> (end of the rows, number of FEATURES=SEQ)
        self._all = np.arange(spec.num_rows, dtype=np.int32)
        self._spans = np.zeros((spec.num_rows, 2), np.int32)
        self._ask_spans = np.zeros((spec.num_rows, 4), np.int32)
        self._reset_all: bytes | None = None
        # Rewards, flags and the envs still to come, for rows of observations alone; made when first needed.
        self._unused: tuple[NDArray[np.float32], NDArray[np.uint8], NDArray[np.uint8]] | None = None

    # -- the trainer's side

    def encode_actions(
        self, actions: NDArray[np.float32], env_ids: Sequence[int] | NDArray[np.int32] | None = None, number: int = 0
    ) -> bytes:
        """One line asking the rows `env_ids` (None: all) for a step.

        Args:
            actions: float32 [num_rows, act_size], C-contiguous; rows that are not asked are ignored.
            number: of the request (FEATURES=SEQ); 0: it has none.

        Raises:
            ActionError: an action is NaN or infinite.
        """
        line = self._encode_actions(self._ids(env_ids), actions, self._act_layout, self._state_form, False, number)
        if isinstance(line, bytes):
            return line
        raise nonfinite_action(actions, line[1], line[4], self.spec)

    def encode_action_lines(
        self, actions: NDArray[np.float32], numbers: NDArray[np.int64] | None = None
    ) -> list[bytes]:
        """One line per env for per-env sockets, in env order, with `numbers` int64 [num_envs]; as `encode_actions`."""
        lines = self._encode_actions(self._all, actions, None, self.form, True, 0 if numbers is None else numbers)
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
            ConfigurationError: an option is no JSON, or a parameter out of its range.
            UnsupportedByEngine: the engine has no such parameter.
        """
        if env_ids is None and seeds is None and options is None and parameters is None:
            if self._reset_all is None:
                self._reset_all = b"||".join(reset_row(self.spec, env) for env in range(self.spec.num_envs)) + b"\n"
            return self._reset_all
        if env_ids is not None:
            ids = env_ids
        else:
            ids = range(self.spec.num_envs)
        given = [seeds, options, parameters]
        rows = [
            reset_row(self.spec, env, *(None if values is None else values[n] for values in given))  # type: ignore[arg-type]
            for n, env in enumerate(ids)
        ]
        return b"||".join(rows) + b"\n"

    def encode_reset_line(
        self,
        seed: int | None = None,
        options: Mapping[str, Any] | None = None,
        env_id: int | None = None,
        parameters: Mapping[str, float] | None = None,
        number: int = 0,
    ) -> bytes:
        """One env's reset for its own socket: no ENV. `env_id`: for errors only."""
        return end_line(reset_row(self.spec, env_id, seed, options, parameters, named=False), number)

    def encode_request(
        self, actions: NDArray[np.float32] | None, resets: Resets | None, buffers: StepBuffers, number: int = 0
    ) -> bytes:
        """One line for a step, for resets, or for both: envs in `resets` begin a new episode or rest, the others step.

        Args:
            actions: float32 [num_rows, act_size]; None: nobody takes a step.
            buffers: of the last answer; with agents, those that are there and whose episode is not over take the step.
            number: see encode_actions.

        Raises:
            ActionError: an action is NaN or infinite. ConfigurationError: an option is no JSON.
        """
        if resets is None:
            assert actions is not None
            live = None
            if self.spec.groups:
                live = live_rows(buffers, self.spec)
            return self.encode_actions(actions, live, number)
        line = self.encode_resets(resets.env_ids, resets.seeds, resets.options, resets.parameters)
        if actions is None:
            if number:
                return end_line(line[:-1], number)
            return line
        stepping = np.ones(self.spec.num_envs, np.bool_)
        stepping[np.asarray(resets.not_stepping, np.intp)] = False
        groups = self.spec.groups
        if groups:
            asked = live_rows(buffers, self.spec, stepping)
        else:
            asked = np.flatnonzero(stepping).astype(np.int32)
        if len(line) == 1:  # a line feed alone: nobody is reset, some rest
            return self.encode_actions(actions, asked, number)
        if number:
            line = end_line(line[:-1], number)
        if asked is None or len(asked):
            return self.encode_actions(actions, asked)[:-1] + b"||" + line
        return line

    def decode_states(
        self,
        data: Any,
        buffers: StepBuffers,
        only_env: int | None = None,
        start: int = 0,
        end: int | None = None,
        number: int = 0,
    ) -> int:
        """Reads one line of states, `data[start:end]`, into `buffers`; returns the number of envs that answered.

        Each row must be of an env whose `buffers.pending` is 1, and clears it. With agents, `pending` is 1 of an agent
        that must answer and 2 of one that may; all of an env's answer stands in one line: when it has been read none of
        its rows is pending any more, and `buffers.present` says who was there.

        Args:
            data: bytes-like; one line, with or without its line ending.
            only_env: the env whose own socket the line came on; None on a shared channel.
            number: where lines are `numbered`, the one that this line must have, 0 for none. Where it has another one,
                or one that cannot be read, 0 is returned and nothing was read.

        Raises:
            ProtocolError: the subclass says what is wrong; rows before the bad one have been written.
            EngineDisconnected: the engine ends the session instead, and says why.
        """
        start, end = _line(data, start, end)
        pending = None
        if self._agents:
            pending = buffers.pending.copy()
        masks = None
        if self._masked:
            masks = buffers.masks
        if only_env is None:
            env = -1
        else:
            env = only_env
        rows: int | k.Failure = self._decode_states(
            data,
            buffers.obs,
            buffers.rewards,
            buffers.dones,
            buffers.truncated,
            buffers.pending,
            self._spans,
            masks,
            self._layout,
            start,
            end,
            self._state_form,
            env,
            number,
        )
        if rows == 0:
            return 0
        if not isinstance(rows, int) or rows <= 0:
            rows = self._look_closer(rows, data, start, end, buffers)
        if pending is None:
            return rows
        return end_answers(self.spec, buffers, pending, memoryview(data)[start:end])

    def decode_state_lines(self, data: bytearray, stride: int, fill: NDArray[np.int32], buffers: StepBuffers) -> int:
        """Reads the lines of all env sockets at once (compiled kernels on POSIX only); otherwise as `decode_states`.

        Args:
            data: env i's line stands at `data[i * stride]` and has `fill[i]` bytes, newline included.
            fill: int32 [num_envs]; 0 where nothing came.
        """
        masks = None
        if self._masked:
            masks = buffers.masks
        rows: int | k.Failure = self._decode_state_lines(
            data,
            buffers.obs,
            buffers.rewards,
            buffers.dones,
            buffers.truncated,
            buffers.pending,
            self._spans,
            masks,
            self._layout,
            stride,
            fill,
            self._state_form,
        )
        if isinstance(rows, int) and rows > 0:
            return rows
        if isinstance(rows, int):
            env = 0
        else:
            env = rows[3] // stride
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
        number: int = 0,
    ) -> bytes:
        """One line with the states of the rows `env_ids` (None: all).

        Args:
            obs: float32 [num_rows, obs_size]. rewards: float32 [num_rows]. dones, truncated: uint8 [num_rows].
            infos: row -> JSON-able dict, sent as INFO.
            masks: uint8 [num_rows, mask_size], sent as MASK where a choice is not legal; None: all are.
            number: of the request that they answer; 0: it has none.

        Raises:
            NonFiniteValue: the game produced NaN or infinity.
        """
        if truncated is None:
            truncated = np.zeros(self.spec.num_rows, np.uint8)
        ids = self._ids(env_ids)
        if infos and self.form != k.FORM_RLBASE:
            return self._encode_with_infos(obs, rewards, dones, truncated, ids, infos, masks, number)
        own_masks = None
        if self._masked:
            own_masks = masks
        line = self._encode_states(
            ids, obs, rewards, dones, truncated, own_masks, self._layout, self._state_form, number
        )
        if isinstance(line, bytes):
            return line
        raise nonfinite_state(obs, rewards, line, self.spec)

    def decode_observations(
        self,
        data: Any,
        obs: NDArray[np.float32],
        resets: NDArray[np.uint8],
        start: int = 0,
        end: int | None = None,
        masks: NDArray[np.uint8] | None = None,
    ) -> NDArray[np.intp]:
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
        n = self.spec.num_envs
        spans = self._spans
        if self._unused is None:
            self._unused = np.zeros(n, np.float32), np.zeros(n, np.uint8), np.zeros(n, np.uint8)
        rewards, truncated, pending = self._unused
        pending.fill(1)
        form = k.OBSERVATIONS
        if n == 1:
            form += k.FORM_SINGLE
        else:
            form += k.FORM_MULTI
        rows = self._decode_states(
            data, obs, rewards, resets, truncated, pending, spans, masks, self._layout, start, end, form, -1
        )
        if isinstance(rows, tuple):
            raise refusal(self.spec, rows, data, start, end, "engine")
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
        number: int = 0,
    ) -> int:
        """Reads one line of asks into `batch`; returns the number of rows.

        Args:
            only_env: the env a row without ENV is for (per-env sockets).
            number: see decode_states.

        Raises:
            ProtocolError: the subclass says what is wrong; RepeatedEnv where an env is still being asked. SET must name
                parameters of the handshake; whether a value is in its range is the trainer's care.
        """
        start, end = _line(data, start, end)
        if only_env is None:
            env = -1
        else:
            env = only_env
        rows: int | k.Failure = self._decode_requests(
            data,
            batch.actions,
            batch.command,
            batch.seeds,
            self._ask_spans,
            self._act_layout,
            start,
            end,
            self._request_form,
            env,
            number,
        )
        if isinstance(rows, int) and rows >= 0:
            return rows
        return self._look_closer(rows, data, start, end, batch)

    # -- helpers

    def _ids(self, env_ids: Sequence[int] | NDArray[np.int32] | None) -> NDArray[np.int32]:
        if env_ids is None:
            return self._all
        return np.ascontiguousarray(env_ids, np.int32)

    def _encode_with_infos(
        self,
        obs: NDArray[np.float32],
        rewards: NDArray[np.float32],
        dones: NDArray[np.uint8],
        truncated: NDArray[np.uint8],
        ids: NDArray[np.int32],
        infos: Mapping[int, Mapping[str, Any]],
        masks: NDArray[np.uint8] | None,
        number: int,
    ) -> bytes:
        rows = []
        for env in ids.tolist():
            row = self.encode_states(obs, rewards, dones, truncated, [env], None, masks)[:-1]
            if infos.get(env):
                row += b";INFO=" + quote(json_text(infos[env], "INFO", env), safe="").encode()
            rows.append(row)
        return end_line(b"||".join(rows), number)

    def _look_closer(
        self, rows: int | k.Failure, data: Any, start: int, end: int, into: StepBuffers | ActionBatch
    ) -> int:
        """For a decoder's result that is not the usual one: a failure, or rows with INFO, OPTIONS or SET."""
        asked = isinstance(into, ActionBatch)
        fault = "engine"
        if asked:
            fault = "trainer"
            spans = self._ask_spans
        else:
            spans = self._spans
        if isinstance(rows, tuple):
            spans[:] = 0
            raise refusal(self.spec, rows, data, start, end, fault)
        places = spans.copy()
        spans[:] = 0  # or the next line's would be read from these places
        if isinstance(into, ActionBatch):
            field = "OPTIONS"
            values = into.options
        else:
            field = "INFO"
            values = into.infos
        for row in np.flatnonzero(places[:, 1]).tolist():
            raw = bytes(data[places[row, 0] : places[row, 1]]).strip()
            value = json_object(unquote_to_bytes(raw))
            if value is None:
                raise MalformedMessage(
                    "the value is not a percent-encoded JSON object",
                    fault=fault,
                    field=field,
                    got=raw,
                    env_id=row // self.spec.agents_per_env,
                )
            values[row] = value
        if isinstance(into, ActionBatch):
            for row in np.flatnonzero(places[:, 3]).tolist():
                if into.command[row] == into.RESET:
                    raw = bytes(data[places[row, 2] : places[row, 3]])
                    into.parameters[row] = read_known(raw, self.spec, row // self.spec.agents_per_env)
        return -rows


def _line(data: Any, start: int, end: int | None) -> tuple[int, int]:
    if end is None:
        end = len(data)
    if end > start and data[end - 1] == 0x0A:
        end -= 1
    return start, end
