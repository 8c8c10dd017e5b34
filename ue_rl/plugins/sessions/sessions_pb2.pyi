from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CreateSessionRequest(_message.Message):
    __slots__ = ("game", "seed", "options_json", "tick_rate")
    GAME_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_JSON_FIELD_NUMBER: _ClassVar[int]
    TICK_RATE_FIELD_NUMBER: _ClassVar[int]
    game: str
    seed: int
    options_json: str
    tick_rate: float
    def __init__(self, game: _Optional[str] = ..., seed: _Optional[int] = ..., options_json: _Optional[str] = ..., tick_rate: _Optional[float] = ...) -> None: ...

class SessionInfo(_message.Message):
    __slots__ = ("session_id", "handshake", "tools_json")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    HANDSHAKE_FIELD_NUMBER: _ClassVar[int]
    TOOLS_JSON_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    handshake: str
    tools_json: str
    def __init__(self, session_id: _Optional[str] = ..., handshake: _Optional[str] = ..., tools_json: _Optional[str] = ...) -> None: ...

class SessionRequest(_message.Message):
    __slots__ = ("session_id",)
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    def __init__(self, session_id: _Optional[str] = ...) -> None: ...

class DestroySessionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class KeepRequest(_message.Message):
    __slots__ = ("session_ids",)
    SESSION_IDS_FIELD_NUMBER: _ClassVar[int]
    session_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, session_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class KeepResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListSessionsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListSessionsResponse(_message.Message):
    __slots__ = ("sessions",)
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    sessions: _containers.RepeatedCompositeFieldContainer[SessionState]
    def __init__(self, sessions: _Optional[_Iterable[_Union[SessionState, _Mapping]]] = ...) -> None: ...

class FastAdvanceRequest(_message.Message):
    __slots__ = ("session_id", "ticks", "actions", "interrupts", "reset", "seed")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    TICKS_FIELD_NUMBER: _ClassVar[int]
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    INTERRUPTS_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    ticks: int
    actions: _containers.RepeatedCompositeFieldContainer[Action]
    interrupts: _containers.RepeatedScalarFieldContainer[str]
    reset: bool
    seed: int
    def __init__(self, session_id: _Optional[str] = ..., ticks: _Optional[int] = ..., actions: _Optional[_Iterable[_Union[Action, _Mapping]]] = ..., interrupts: _Optional[_Iterable[str]] = ..., reset: bool = ..., seed: _Optional[int] = ...) -> None: ...

class Action(_message.Message):
    __slots__ = ("action", "tool", "arguments_json", "ask")
    ACTION_FIELD_NUMBER: _ClassVar[int]
    TOOL_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_JSON_FIELD_NUMBER: _ClassVar[int]
    ASK_FIELD_NUMBER: _ClassVar[int]
    action: bytes
    tool: str
    arguments_json: str
    ask: bool
    def __init__(self, action: _Optional[bytes] = ..., tool: _Optional[str] = ..., arguments_json: _Optional[str] = ..., ask: bool = ...) -> None: ...

class Observation(_message.Message):
    __slots__ = ("session_id", "tick", "observation", "reward", "terminated", "truncated", "result", "info_json", "ticks_advanced", "dropped_observations", "dropped_actions", "interrupt", "mask", "late_ticks")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    TICK_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_FIELD_NUMBER: _ClassVar[int]
    REWARD_FIELD_NUMBER: _ClassVar[int]
    TERMINATED_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    INFO_JSON_FIELD_NUMBER: _ClassVar[int]
    TICKS_ADVANCED_FIELD_NUMBER: _ClassVar[int]
    DROPPED_OBSERVATIONS_FIELD_NUMBER: _ClassVar[int]
    DROPPED_ACTIONS_FIELD_NUMBER: _ClassVar[int]
    INTERRUPT_FIELD_NUMBER: _ClassVar[int]
    MASK_FIELD_NUMBER: _ClassVar[int]
    LATE_TICKS_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    tick: int
    observation: bytes
    reward: float
    terminated: bool
    truncated: bool
    result: str
    info_json: str
    ticks_advanced: int
    dropped_observations: int
    dropped_actions: int
    interrupt: str
    mask: bytes
    late_ticks: int
    def __init__(self, session_id: _Optional[str] = ..., tick: _Optional[int] = ..., observation: _Optional[bytes] = ..., reward: _Optional[float] = ..., terminated: bool = ..., truncated: bool = ..., result: _Optional[str] = ..., info_json: _Optional[str] = ..., ticks_advanced: _Optional[int] = ..., dropped_observations: _Optional[int] = ..., dropped_actions: _Optional[int] = ..., interrupt: _Optional[str] = ..., mask: _Optional[bytes] = ..., late_ticks: _Optional[int] = ...) -> None: ...

class SessionState(_message.Message):
    __slots__ = ("session_id", "phase", "tick", "result", "text", "idle_seconds")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    TICK_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    IDLE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    phase: str
    tick: int
    result: str
    text: str
    idle_seconds: float
    def __init__(self, session_id: _Optional[str] = ..., phase: _Optional[str] = ..., tick: _Optional[int] = ..., result: _Optional[str] = ..., text: _Optional[str] = ..., idle_seconds: _Optional[float] = ...) -> None: ...

class StepAllRequest(_message.Message):
    __slots__ = ("session_ids", "actions", "ticks", "resets")
    SESSION_IDS_FIELD_NUMBER: _ClassVar[int]
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    TICKS_FIELD_NUMBER: _ClassVar[int]
    RESETS_FIELD_NUMBER: _ClassVar[int]
    session_ids: _containers.RepeatedScalarFieldContainer[str]
    actions: bytes
    ticks: int
    resets: _containers.RepeatedCompositeFieldContainer[SessionReset]
    def __init__(self, session_ids: _Optional[_Iterable[str]] = ..., actions: _Optional[bytes] = ..., ticks: _Optional[int] = ..., resets: _Optional[_Iterable[_Union[SessionReset, _Mapping]]] = ...) -> None: ...

class SessionReset(_message.Message):
    __slots__ = ("row", "seed", "options_json")
    ROW_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_JSON_FIELD_NUMBER: _ClassVar[int]
    row: int
    seed: int
    options_json: str
    def __init__(self, row: _Optional[int] = ..., seed: _Optional[int] = ..., options_json: _Optional[str] = ...) -> None: ...

class StepAllResponse(_message.Message):
    __slots__ = ("observations", "rewards", "terminated", "truncated", "masks", "infos_json", "results", "ticks")
    class InfosJsonEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: str
        def __init__(self, key: _Optional[int] = ..., value: _Optional[str] = ...) -> None: ...
    class ResultsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: str
        def __init__(self, key: _Optional[int] = ..., value: _Optional[str] = ...) -> None: ...
    OBSERVATIONS_FIELD_NUMBER: _ClassVar[int]
    REWARDS_FIELD_NUMBER: _ClassVar[int]
    TERMINATED_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    MASKS_FIELD_NUMBER: _ClassVar[int]
    INFOS_JSON_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    TICKS_FIELD_NUMBER: _ClassVar[int]
    observations: bytes
    rewards: bytes
    terminated: bytes
    truncated: bytes
    masks: bytes
    infos_json: _containers.ScalarMap[int, str]
    results: _containers.ScalarMap[int, str]
    ticks: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, observations: _Optional[bytes] = ..., rewards: _Optional[bytes] = ..., terminated: _Optional[bytes] = ..., truncated: _Optional[bytes] = ..., masks: _Optional[bytes] = ..., infos_json: _Optional[_Mapping[int, str]] = ..., results: _Optional[_Mapping[int, str]] = ..., ticks: _Optional[_Iterable[int]] = ...) -> None: ...
