"""RLlib's default policy networks, rebuilt in NumPy from the names and shapes of their parameters. No torch.

Source: ray.rllib.core (Ray 2.60), its torch catalogs and MLP models: an encoder of linear layers with an activation
behind each, and a head `pi` whose last layer has none. What the weights do not say, the activations, the server's
config does (ue_rl/plugins/rllib/rllink/configs.py); with the wrong one nothing fails and nothing is learnt.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.system.errors import UnsupportedNetwork

Array = NDArray[np.float32]
_LAYER = re.compile(r"(?P<net>.+)\.net\.mlp\.(?P<at>\d{1,3})\.(?P<what>weight|bias)")
# Of PPO and its kin with a shared and with an own encoder, and of SAC; in this order, as the first one found is taken.
_ENCODERS = ("encoder.encoder", "encoder.actor_encoder", "pi_encoder", "encoder")
_HEAD = "pi"
_LOG_STD = "pi.log_std"
_LOG_STD_CLIP = "pi.log_std_clip_param_const"
# Nets of which the policy needs nothing.
_OTHERS = re.compile(r"(vf|qf|qf_twin|qf_encoder|qf_twin_encoder|target_\w+|encoder\.critic_encoder)\b.*")


def _float32(x: NDArray[Any]) -> Array:
    return np.asarray(x, np.float32)


def _erf(x: Array) -> Array:
    """Abramowitz and Stegun 7.1.26: to 1.5e-7, which is float32's rounding."""
    t = 1 / (1 + 0.3275911 * np.abs(x))
    poly = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    return _float32(np.sign(x) * (1 - poly * np.exp(-x * x)))


def _silu(x: Array) -> Array:
    with np.errstate(over="ignore"):
        return _float32(x / (1 + np.exp(-x)))


def _elu(x: Array) -> Array:
    return _float32(np.where(x > 0, x, np.expm1(np.minimum(x, 0))))


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
    "silu": _silu,
    "swish": _silu,
    "elu": _elu,
    "gelu": lambda x: _float32(x * 0.5 * (1 + _erf(x / np.float32(math.sqrt(2))))),
    "linear": lambda x: x,
}


def activation(name: str | None) -> Callable[[Array], Array]:
    """By RLlib's name for it, in upper or lower case; None is "linear".

    Raises:
        UnsupportedNetwork: it is not known here.
    """
    known = name
    if not known:
        known = "linear"
    found = ACTIVATIONS.get(known.lower())
    if found is None:
        raise UnsupportedNetwork(
            "this activation is not known here", field="activation", expected=", ".join(ACTIVATIONS), got=name
        )
    return found


@dataclass(frozen=True)
class Network:
    """Observations to the numbers that a distribution is made of.

    Args:
        encoder, head: (weight [in, out], bias [out]) of each layer, float32.
        encoder_activation, head_activation: behind each layer of the encoder; behind those of the head but the last.
        log_std: float32 [k]; appended to each row where the standard deviation is a parameter of its own, else None.
        log_std_clip: bounds the second half of the row, the logs of standard deviations; None: nothing does.
    """

    encoder: list[tuple[Array, Array]]
    head: list[tuple[Array, Array]]
    encoder_activation: Callable[[Array], Array]
    head_activation: Callable[[Array], Array]
    log_std: Array | None
    log_std_clip: float | None

    @property
    def obs_size(self) -> int:
        """Numbers of an observation."""
        layers = self.encoder
        if not layers:
            layers = self.head
        return len(layers[0][0])

    @property
    def num_logits(self) -> int:
        """Numbers of a row that comes out."""
        own = 0
        if self.log_std is not None:
            own = len(self.log_std)
        return int(self.head[-1][0].shape[1]) + own

    def __call__(self, obs: Array) -> Array:
        """float32 [N, num_logits] of float32 [N, obs_size]."""
        x = obs
        for weight, bias in self.encoder:
            x = self.encoder_activation(x @ weight + bias)
        for weight, bias in self.head[:-1]:
            x = self.head_activation(x @ weight + bias)
        weight, bias = self.head[-1]
        x = x @ weight + bias
        if self.log_std is not None:
            own = self._clipped(np.broadcast_to(self.log_std, (len(x), len(self.log_std))))
            return np.concatenate([x, own], axis=1, dtype=np.float32)
        if self.log_std_clip is not None:
            half = x.shape[1] // 2
            x[:, half:] = self._clipped(x[:, half:])
        return x

    def _clipped(self, log_std: Array) -> Array:
        if self.log_std_clip is None:
            return log_std
        return np.clip(log_std, -self.log_std_clip, self.log_std_clip)


def network(
    weights: Mapping[str, NDArray[Any]], encoder_activation: str | None, head_activation: str | None, *, gaussian: bool
) -> Network:
    """The policy in these parameters.

    Args:
        weights: parameter name -> array, as SET_STATE brings them. encoder_activation, head_activation: see
            ServerConfig. gaussian: of a DiagGaussian the second half of what comes out are logs, which are kept within
            pi.log_std_clip_param_const; of SAC's squashed one they are not.

    Raises:
        UnsupportedNetwork: it is none of RLlib's MLPs (convolutions, an LSTM, layer norms, a module of somebody's own);
            the parameters that are not understood are named.
    """
    nets: dict[str, dict[int, dict[str, Array]]] = {}
    rest: list[str] = []
    for name, value in weights.items():
        found = _LAYER.fullmatch(name)
        if found and value.ndim == (2 if found["what"] == "weight" else 1):
            layer = nets.setdefault(found["net"], {}).setdefault(int(found["at"]), {})
            layer[found["what"]] = _single(value)
        elif name not in (_LOG_STD, _LOG_STD_CLIP):
            rest.append(name)
    encoder = next((name for name in _ENCODERS if name in nets), None)
    strange = [name for name in rest if not _OTHERS.fullmatch(name)]
    strange += [name for name in nets if name not in (encoder, _HEAD) and not _OTHERS.fullmatch(name)]
    if strange or _HEAD not in nets:
        problem = "there is no policy head among the weights"
        if strange:
            problem = "this policy is none of RLlib's default MLPs"
        raise UnsupportedNetwork(
            problem,
            field="weights",
            expected="ENCODER.net.mlp.N.weight and pi.net.mlp.N.weight",
            got=", ".join(sorted(strange or weights)),
            cure="RLlink clients here run MLPs: no convolutions, LSTM, layer norms or modules of one's own",
        )
    clip = weights.get(_LOG_STD_CLIP)
    log_std = weights.get(_LOG_STD)
    hidden = []
    if encoder is not None:
        hidden = _layers(nets[encoder], encoder)
    made = Network(
        hidden,
        _layers(nets[_HEAD], _HEAD),
        activation(encoder_activation),
        activation(head_activation),
        None if log_std is None else _single(log_std).reshape(-1),
        float(clip.reshape(-1)[0]) if clip is not None and clip.size and gaussian else None,
    )
    _check(made)
    return made


def _single(value: NDArray[Any]) -> Array:
    with np.errstate(over="ignore"):  # what does not fit becomes infinite, and is seen when the policy acts
        return value.astype(np.float32)


def _layers(found: dict[int, dict[str, Array]], net: str) -> list[tuple[Array, Array]]:
    """In order, with weights turned so that `obs @ weight` is the layer."""
    layers = []
    for at in sorted(found):
        weight = found[at].get("weight")
        bias = found[at].get("bias")
        if weight is None or (bias is not None and len(bias) != len(weight)):
            got = f"{net}.net.mlp.{at}"
            expected = "a weight [out, in] and a bias [out]"
            raise UnsupportedNetwork("a layer is not linear", field="weights", got=got, expected=expected)
        layers.append((np.ascontiguousarray(weight.T), np.zeros(len(weight), np.float32) if bias is None else bias))
    return layers


def _check(made: Network) -> None:
    """Each layer takes what the one before gives."""
    layers = [*made.encoder, *made.head]
    if made.log_std is not None and len(made.log_std) != layers[-1][0].shape[1]:
        what = "the standard deviations do not fit the means"
        expected = f"{layers[-1][0].shape[1]} numbers"
        raise UnsupportedNetwork(what, field=_LOG_STD, expected=expected, got=len(made.log_std))
    for (before, _), (after, _) in pairwise(layers):
        if before.shape[1] != after.shape[0]:
            what = "the layers do not fit together"
            expected = f"{before.shape[1]} inputs"
            raise UnsupportedNetwork(what, field="weights", expected=expected, got=f"{after.shape[0]}")
