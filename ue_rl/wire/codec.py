"""Codec(spec): lines of text <-> rows of StepBuffers and ActionBatch, for both sides. No state, no I/O.

The grammar is docs/protocol.md; the loops are kernels_pure.py and _kernels.c; the handshake is handshake.py. This file
chooses the message form, turns kernel failures into named errors, and reads the percent-encoded JSON of
INFO and OPTIONS. It never repairs: a row is exactly right or it raises.
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
    MalformedMessage,
    NonFiniteValue,
    ProtocolError,
    RepeatedEnv,
    UnknownEnv,
    WrongCount,
    shorten,
)
from ue_rl.json_text import json_object, json_text
from ue_rl.spec import EnvSpec, EnvType
from ue_rl.wire import kernels_pure as k
from ue_rl.wire.space_text import name_text

__all__ = ["Codec", "line_limit"]

_FORMS = {EnvType.MULTI: k.FORM_MULTI, EnvType.SINGLE: k.FORM_SINGLE, EnvType.RLBASE: k.FORM_RLBASE}
_FIRST = np.zeros(1, np.intp)  # the env ids of a line of one env
_FIRST.flags.writeable = False
_ENV = re.compile(rb"(?:^|[;|])\s*ENV\s*=\s*(\d{1,9})\s*(?:;|$|\|)", re.IGNORECASE)
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
}


def line_limit(spec: EnvSpec) -> int:
    """The longest line, in bytes, that a reader must take (docs/protocol.md, section 9)."""
    numbers = spec.num_envs * max(spec.obs_size + 1, spec.act_size)
    json_room = 65_536 if spec.features & {"INFO", "OPTIONS"} else 64
    return 1024 + 48 * numbers + json_room * spec.num_envs


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
        self._decode_states = module.decode_states
        self._decode_state_lines: Any = getattr(module, "decode_state_lines", None)
        self._decode_requests = module.decode_requests
        self._encode_actions = module.encode_actions
        self._encode_states = module.encode_states
        self._all = np.arange(spec.num_envs, dtype=np.int32)
        self._spans = np.zeros((spec.num_envs, 2), np.int32)
        self._reset_all: bytes | None = None
        # Rewards, flags and the envs still to come, for rows of observations alone; made when first needed.
        self._unused: tuple[NDArray[np.float32], NDArray[np.uint8], NDArray[np.uint8]] | None = None

    # -- the trainer's side

    def encode_actions(
        self, actions: NDArray[np.float32], env_ids: Sequence[int] | NDArray[np.int32] | None = None
    ) -> bytes:
        """One line asking `env_ids` (None: all) for a step.

        Args:
            actions: float32 [num_envs, act_size], C-contiguous; rows of envs that are not asked are ignored.

        Raises:
            ActionError: an action is NaN or infinite.
        """
        line = self._encode_actions(self._ids(env_ids), actions, self.form, False)
        if isinstance(line, bytes):
            return line
        raise nonfinite_action(actions, line[1], line[4])

    def encode_action_lines(self, actions: NDArray[np.float32]) -> list[bytes]:
        """One line per env for per-env sockets, in env order; otherwise as `encode_actions`."""
        lines = self._encode_actions(self._all, actions, self.form, True)
        if isinstance(lines, list):
            return lines
        raise nonfinite_action(actions, lines[1], lines[4])

    def encode_resets(
        self,
        env_ids: Sequence[int] | None = None,
        seeds: Sequence[int | None] | None = None,
        options: Sequence[Mapping[str, Any] | None] | None = None,
        parameters: Sequence[Mapping[str, float] | None] | None = None,
    ) -> bytes:
        """One line asking `env_ids` (None: all) for a new episode; `seeds`, `options` and `parameters` align with them.

        Raises:
            ConfigurationError: an option is no JSON.
        """
        if env_ids is None and seeds is None and options is None and parameters is None:
            if self._reset_all is None:
                self._reset_all = b"||".join(self._reset_row(int(i)) for i in self._all) + b"\n"
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
            buffers: of the last answer.

        Raises:
            ActionError: an action is NaN or infinite. ConfigurationError: an option is no JSON.
        """
        if resets is None:
            assert actions is not None
            return self.encode_actions(actions)
        line = self.encode_resets(resets.env_ids, resets.seeds, resets.options, resets.parameters)
        if actions is None:
            return line
        stepping = np.ones(self.spec.num_envs, np.bool_)
        stepping[np.asarray(resets.env_ids, np.intp)] = False
        return self.encode_actions(actions, np.flatnonzero(stepping).astype(np.int32))[:-1] + b"||" + line

    def decode_states(
        self,
        data: Any,
        buffers: StepBuffers,
        only_env: int | None = None,
        start: int = 0,
        end: int | None = None,
    ) -> int:
        """Reads one line of states, `data[start:end]`, into `buffers`; returns the number of rows.

        Each row must be of an env whose `buffers.pending` is 1, and clears it.

        Args:
            data: bytes-like; one line, with or without its line ending.
            only_env: the env whose own socket the line came on; None on a shared channel.

        Raises:
            ProtocolError: the subclass says what is wrong; rows before the bad one have been written.
        """
        start, end = _line(data, start, end)
        rows: int | k.Failure = self._decode_states(
            data, buffers.obs, buffers.rewards, buffers.dones, buffers.truncated, buffers.pending, self._spans,
            start, end, self.form, -1 if only_env is None else only_env,
        )  # fmt: skip
        if isinstance(rows, int) and rows > 0:
            return rows
        return self._look_closer(rows, data, start, end, buffers.infos, "INFO", "engine")

    def decode_state_lines(self, data: bytearray, stride: int, fill: NDArray[np.int32], buffers: StepBuffers) -> int:
        """Reads the lines of all env sockets at once (compiled kernels on POSIX only); otherwise as `decode_states`.

        Args:
            data: env i's line stands at `data[i * stride]` and has `fill[i]` bytes, newline included.
            fill: int32 [num_envs]; 0 where nothing came.
        """
        rows: int | k.Failure = self._decode_state_lines(
            data, buffers.obs, buffers.rewards, buffers.dones, buffers.truncated, buffers.pending, self._spans,
            stride, fill, self.form,
        )  # fmt: skip
        if isinstance(rows, int) and rows > 0:
            return rows
        env = 0 if isinstance(rows, int) else rows[3] // stride
        line = env * stride
        return self._look_closer(rows, data, line, line + int(fill[env]), buffers.infos, "INFO", "engine")

    # -- the engine's side

    def encode_states(
        self,
        obs: NDArray[np.float32],
        rewards: NDArray[np.float32],
        dones: NDArray[np.uint8],
        truncated: NDArray[np.uint8] | None = None,
        env_ids: Sequence[int] | NDArray[np.int32] | None = None,
        infos: Mapping[int, Mapping[str, Any]] | None = None,
    ) -> bytes:
        """One line with the states of `env_ids` (None: all).

        Args:
            obs: float32 [num_envs, obs_size]. rewards: float32 [num_envs]. dones, truncated: uint8 [num_envs].
            infos: env id -> JSON-able dict, sent as INFO.

        Raises:
            NonFiniteValue: the game produced NaN or infinity.
        """
        if truncated is None:
            truncated = np.zeros(self.spec.num_envs, np.uint8)
        ids = self._ids(env_ids)
        if infos and self.form != k.FORM_RLBASE:
            return self._encode_with_infos(obs, rewards, dones, truncated, ids, infos)
        line = self._encode_states(ids, obs, rewards, dones, truncated, self.form)
        if isinstance(line, bytes):
            return line
        _, env, field, _, index = line
        raise NonFiniteValue(
            "the game produced a value that is not a finite number", fault="engine", env_id=env,
            field=k.FIELDS[field], expected="finite float32",
            got=f"{obs[env, index] if field == k.F_OBS else rewards[env]} at index {index}",
            cure=_NAN_CURE.format(who="game's state or reward"),
        )  # fmt: skip

    def decode_observations(
        self, data: Any, obs: NDArray[np.float32], resets: NDArray[np.uint8], start: int = 0, end: int | None = None
    ) -> NDArray[np.intp]:
        """Reads one line of observations alone, `OBS=..[;ENV=i][;RESET=1]` joined by `||`, in all spellings of states.

        Args:
            obs: float32 [num_envs, obs_size]; row `env` receives that env's observation.
            resets: uint8 [num_envs]; receives 1 where RESET=1 came, else 0.

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
        rows = self._decode_states(data, obs, rewards, resets, truncated, pending, spans, start, end, form, -1)
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
            ProtocolError: the subclass says what is wrong; RepeatedEnv where an env is still being asked.
        """
        start, end = _line(data, start, end)
        rows: int | k.Failure = self._decode_requests(
            data, batch.actions, batch.command, batch.seeds, self._spans,
            start, end, self.form, -1 if only_env is None else only_env,
        )  # fmt: skip
        if isinstance(rows, int) and rows > 0:
            return rows
        return self._look_closer(rows, data, start, end, batch.options, "OPTIONS", "trainer")

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
            text += f";SET={','.join(f'{name_text(name)}:{value!r}' for name, value in parameters.items())}"
        return text.encode()

    def _encode_with_infos(
        self,
        obs: NDArray[np.float32],
        rewards: NDArray[np.float32],
        dones: NDArray[np.uint8],
        truncated: NDArray[np.uint8],
        ids: NDArray[np.int32],
        infos: Mapping[int, Mapping[str, Any]],
    ) -> bytes:
        rows = []
        for env in ids.tolist():
            row = self.encode_states(obs, rewards, dones, truncated, [env])[:-1]
            if infos.get(env):
                row += b";INFO=" + quote(json_text(infos[env], "INFO", env), safe="").encode()
            rows.append(row)
        return b"||".join(rows) + b"\n"

    def _look_closer(
        self, rows: int | k.Failure, data: Any, start: int, end: int, into: dict[int, dict[str, Any]], field: str,
        fault: str,
    ) -> int:  # fmt: skip
        """For a decoder's result that is not the usual one: a failure, or rows with INFO or OPTIONS."""
        if isinstance(rows, tuple):
            raise self._refusal(rows, data, start, end, fault)
        spans, found = self._spans, np.flatnonzero(self._spans[:, 1]).tolist()
        texts = [bytes(data[spans[env, 0] : spans[env, 1]]).strip() for env in found]
        spans[:] = 0  # or the next line's would be read from these places
        for env, raw in zip(found, texts, strict=True):
            value = json_object(unquote_to_bytes(raw))
            if value is None:
                raise MalformedMessage(
                    "the value is not a percent-encoded JSON object", fault=fault, env_id=env, field=field, got=raw
                )
            into[env] = value
        return -rows

    def _refusal(self, failure: k.Failure, data: Any, start: int, end: int, fault: str) -> ProtocolError:
        """The error for a decoder's failure in the line data[start:end]."""
        code, env, field_id, at, got = failure
        self._spans[:] = 0
        kind, message = _KIND[code]
        field = k.FIELDS[field_id]
        size = self.spec.obs_size if field == "OBS" else self.spec.act_size
        line = bytes(data[start:end])
        if env < 0 and self.form == k.FORM_MULTI:
            env = self._env_named(line, at - start)
        expected: str | None = None
        cure: str | None = None
        if code == k.WRONG_COUNT:
            expected = f"{size} numbers"
            message += f": {got} came" if got >= 0 else ""
            cure = "the handshake's OBS and ACT must be what the game sends and takes"
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
        if code == k.REPEATED_ENV and fault == "trainer":
            message = "an env was asked again before it had answered"
        return kind(
            message,
            fault=fault,
            env_id=env if env >= 0 else None,
            field=field,
            expected=expected,
            got=_around(line, at - start),
            cure=cure,
        )

    def _env_named(self, line: bytes, at: int) -> int:
        """The env that the row around `at` names, -1 for none: in a row, ENV stands behind what was refused."""
        end = line.find(b"||", at)
        found = _ENV.search(line, line.rfind(b"||", 0, at) + 1, len(line) if end < 0 else end)
        env = int(found.group(1)) if found else -1
        return env if env < self.spec.num_envs else -1


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


def nonfinite_action(actions: NDArray[np.float32], env: int, index: int) -> ActionError:
    """The error for number `index` of env `env` in actions float32 [num_envs, act_size]."""
    return ActionError(
        "the policy gave an action that is not a finite number", fault="policy", env_id=env, field="ACT",
        expected="finite float32", got=f"{actions[env, index]} at index {index}",
        cure="training has diverged, or an observation was not normalised: lower the learning rate, "
        "wrap the env in VecNormalize, look for huge observations",
    )  # fmt: skip
