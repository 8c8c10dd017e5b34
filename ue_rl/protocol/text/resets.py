"""One env's reset, as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from ue_rl.protocol.spec import EnvSpec, EnvType
from ue_rl.protocol.text.settings import check_parameters, settings_text
from ue_rl.system.json_text import json_text


def reset_row(
    spec: EnvSpec,
    env: int | None,
    seed: int | None = None,
    options: Mapping[str, Any] | None = None,
    parameters: Mapping[str, float] | None = None,
    named: bool = True,
) -> bytes:
    """One env's reset, without a line ending; raises as Codec.encode_resets.

    Args:
        env: None where `named` is False and no error can name it. named: it stands on a socket for all envs.
    """
    if spec.env_type is EnvType.RLBASE:
        return b"RESET"
    text = "ACT=RESET"
    if named and spec.env_type is EnvType.MULTI:
        text += f";ENV={env}"
    if seed is not None:
        text += f";SEED={int(seed)}"  # True is 1 for Gymnasium, too
    if options is not None:
        text += f";OPTIONS={quote(json_text(options, 'OPTIONS', env), safe='')}"
    if parameters:
        check_parameters(spec.parameters, parameters, "SET", env)
        text += f";SET={settings_text(parameters)}"
    return text.encode()
