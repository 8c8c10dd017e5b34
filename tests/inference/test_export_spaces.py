"""Export of policies for the spaces of the handshake: the file takes the engine's flat row and gives its action row.

What must hold is said by the envs' own code: the row becomes an observation by ue_rl.envs.observations, predict()
answers, and ue_rl.envs.actions writes the row that an engine gets.
"""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import onnx
import onnxruntime
import pytest
import sb3_contrib
import stable_baselines3

from tests.support import models
from ue_rl.envs.actions import ActionWriter
from ue_rl.envs.hybrid_box import HybridBox
from ue_rl.envs.observations import Observations
from ue_rl.envs.spaces import action_space, observation_space
from ue_rl.inference import OnnxInference, Sb3Inference, export_onnx, load_and_export
from ue_rl.protocol.spaces.tree import Branch, Leaf, LeafKind, bounds, box, leaves
from ue_rl.protocol.spec import ActionSpec, EnvSpec
from ue_rl.system.errors import ExportError

DISCRETE = Leaf(LeafKind.DISCRETE, counts=(4,))
FROM_3 = Leaf(LeafKind.DISCRETE, counts=(4,), starts=(3,))
LEVELS = Leaf(LeafKind.MULTI_DISCRETE, (2,), counts=(3, 2), starts=(-1, 5))
FLAGS = Leaf(LeafKind.MULTI_BINARY, (3,))
ROW = box((5,))
OBSERVATIONS = {
    "row": ROW,
    "matrix": box((2, 3), -1, 2, "float64"),
    "integers": box((4,), -100, 100, "int16"),
    "discrete from 3": FROM_3,
    "multi_discrete": LEVELS,
    "multi_binary": FLAGS,
    "picture": box((36, 36, 3), 0, 255, "uint8"),
    # in an order that sorting would change
    "dict": Branch((("z", ROW), ("weapon", FROM_3), ("levels", LEVELS), ("flags", FLAGS), ("a", box((2, 2), -1, 2)))),
    "dict with a picture": Branch((("where", box((3,))), ("eye", box((36, 36, 1), 0, 255, "uint8")), ("b", DISCRETE))),
}
ACTIONS = {
    "box": box((2,), -1, 1),
    "matrix": box((2, 2), -3, 1),
    "discrete from 3": FROM_3,
    "multi_discrete": LEVELS,
    "multi_binary": FLAGS,
    "hybrid": Branch((("move", box((2,), -3, 1)), ("gun", FROM_3), ("levels", LEVELS), ("buttons", FLAGS))),
    "hybrid tuple": Branch((("0", DISCRETE), ("1", Branch((("x", box((1,), 0, 5)),)))), named=False),
    "hybrid without numbers": Branch((("gun", FROM_3), ("buttons", FLAGS))),
}
N = 300


def spec_of(observation: str, action: str, **more) -> EnvSpec:
    tree, acted = OBSERVATIONS[observation], ActionSpec.of(ACTIONS[action])
    return EnvSpec(tree.size, acted.size, obs_space=tree, action=acted, num_envs=N, **more)


def make(spec: EnvSpec, algorithm: str = "PPO", normalized: tuple[str, ...] | None = None):
    """A model with the spaces that UnrealVecEnv gives Stable-Baselines3."""
    seen, acted = observation_space(spec, zero_based=True), action_space(spec, zero_based=True)
    policy = "CnnPolicy" if len(seen.shape or ()) == 3 else "MlpPolicy"
    if isinstance(seen, gym.spaces.Dict):
        policy = "MultiInputPolicy"
    kind = getattr(stable_baselines3 if hasattr(stable_baselines3, algorithm) else sb3_contrib, algorithm)
    stats = False if normalized is None else {"norm_obs_keys": list(normalized)}
    model = models.make(kind, acted, seen, policy, normalize=stats, policy_kwargs={"net_arch": [16, 16]})
    rng = np.random.default_rng(0)
    for rms in model.env.obs_rms.values() if normalized else ():
        rms.mean, rms.var = rng.normal(0, 3, rms.mean.shape), rng.uniform(0.1, 9, rms.var.shape)
    models.scramble(model.policy)
    return model


def wire_rows(spec: EnvSpec) -> np.ndarray:
    """Rows as an engine sends them, float32 [N, OBS]."""
    rng, parts = np.random.default_rng(1), []
    for _, leaf, _ in leaves(spec.obs_space or ROW):
        low, high = bounds(leaf)
        if leaf.kind is LeafKind.BOX and leaf.dtype.startswith("float"):
            low, high = np.where(np.isfinite(low), low, -4), np.where(np.isfinite(high), high, 4)
            parts.append(rng.uniform(low, high, (N, leaf.size)))
        else:
            parts.append(rng.integers(low.astype(int), high.astype(int), (N, leaf.size), endpoint=True))
    return np.concatenate(parts, axis=1).astype(np.float32)


def wanted(model, spec: EnvSpec, rows: np.ndarray) -> np.ndarray:
    """The rows that the engine would get while training."""
    seen = Observations(spec, zero_based=True).of_rows(rows)
    stats = model.get_vec_normalize_env()
    actions, _ = model.predict(stats.normalize_obs(seen) if stats else seen, deterministic=True)
    return ActionWriter(spec, zero_based=True)(actions)


def check(model, spec: EnvSpec, path) -> OnnxInference:
    report = models.export_briefly(model, path, flat_input=True, spec=spec)
    policy = OnnxInference(path)
    rows = wire_rows(spec)
    (port,) = onnxruntime.InferenceSession(path).get_inputs()
    assert (port.name, port.shape[1:]) == ("obs", [spec.obs_size])
    got, want = policy.run_inference(rows), wanted(model, spec, rows)
    assert got.shape == want.shape == (N, spec.act_size)
    assert np.isclose(got, want, atol=1e-4).all(axis=1).mean() > 0.99  # ties between choices apart
    assert len(np.unique(want, axis=0)) > 1, "the policy is decided by what it sees"
    assert report.metadata.act_size == spec.act_size
    return policy


def seen_and_done():
    """Each run takes each observation once, with numbers or with a choice; the other is exhaustive."""
    for at, observation in enumerate(OBSERVATIONS):
        for number, action in enumerate(("box", "discrete from 3")):
            marks = pytest.mark.exhaustive if (at + number) % 2 else ()
            yield pytest.param(observation, action, marks=marks)


@pytest.mark.parametrize(("observation", "action"), list(seen_and_done()))
def test_every_observation_space_as_one_flat_row(tmp_path, observation: str, action: str) -> None:
    spec = spec_of(observation, action)
    check(make(spec), spec, tmp_path / "p.onnx")


LIKE_ABOVE = ("box", "discrete from 3")  # beside every kind of observation
EACH_ACTION = [pytest.param(name, marks=[pytest.mark.exhaustive] * (name in LIKE_ABOVE)) for name in ACTIONS]


@pytest.mark.parametrize("action", EACH_ACTION)
def test_every_action_space_as_the_engine_s_row(tmp_path, action: str) -> None:
    spec = spec_of("row", action)
    check(make(spec), spec, tmp_path / "p.onnx")


@pytest.mark.parametrize(
    ("algorithm", "action"),
    [("SAC", "hybrid"), pytest.param("SAC", "matrix", marks=pytest.mark.exhaustive), ("DQN", "discrete from 3")],
)
def test_off_policy_algorithms_too(tmp_path, algorithm: str, action: str) -> None:
    spec = spec_of("dict", action)
    check(make(spec, algorithm), spec, tmp_path / "p.onnx")


def test_normalised_parts_of_a_dict(tmp_path) -> None:
    spec = spec_of("dict", "hybrid")
    check(make(spec, normalized=("z", "a")), spec, tmp_path / "p.onnx")


def test_the_row_is_taken_apart_in_the_engine_s_order_whatever_the_model_s(tmp_path) -> None:
    spec = spec_of("dict", "box")
    model = make(spec)
    ordered = list(model.observation_space.spaces)
    model.observation_space.spaces = {key: model.observation_space.spaces[key] for key in sorted(ordered)}
    assert ordered == ["z", "weapon", "levels", "flags", "a"] != sorted(ordered)
    policy = check(model, spec, tmp_path / "p.onnx")
    assert list(policy.metadata.observation_space["spaces"]) == ordered


def test_a_saved_model_still_knows_where_the_engine_s_choices_begin(tmp_path) -> None:
    spec = spec_of("discrete from 3", "discrete from 3")
    model = make(spec)
    model.save(tmp_path / "model.zip")
    report = load_and_export(tmp_path / "model.zip", flat_input=True, n_verify=1000)
    assert report.metadata.action_space == {"type": "Discrete", "n": 4, "start": 3}
    rows = wire_rows(spec)
    want = wanted(model, spec, rows)
    assert want.min() >= 3
    np.testing.assert_array_equal(OnnxInference(tmp_path / "model.onnx").run_inference(rows), want)
    seen = Observations(spec, zero_based=True).of_rows(rows)
    np.testing.assert_array_equal(Sb3Inference(tmp_path / "model.zip").run_inference(seen), want)


def test_a_hybrid_model_file_is_played_as_its_onnx_file_is(tmp_path) -> None:
    spec = spec_of("row", "hybrid")
    model = make(spec)
    model.save(tmp_path / "model.zip")
    rows = wire_rows(spec)
    played = Sb3Inference(tmp_path / "model.zip")
    assert played.act_size == spec.act_size
    np.testing.assert_array_equal(played.run_inference(rows), wanted(model, spec, rows))


class OtherGun(HybridBox):
    """In row 3."""

    def decode(self, actions):
        rows = super().decode(actions)
        rows[3, 2] = 3 + (rows[3, 2] - 2) % 4
        return rows


def test_a_wrong_hybrid_choice_is_refused(tmp_path) -> None:
    model = models.make(stable_baselines3.PPO, OtherGun(ACTIONS["hybrid"]), observation_space(spec_of("row", "hybrid")))
    models.scramble(model.policy)
    with pytest.raises(ExportError, match="any difference of a discrete action"):
        export_onnx(model, tmp_path / "p.onnx")


def test_names_stand_in_the_file_where_the_handshake_has_them(tmp_path) -> None:
    spec = spec_of("row", "box", obs_names=tuple("abcde"), act_names=("throttle", "steer[rad]"))
    model = make(spec)
    report = models.export_briefly(model, tmp_path / "p.onnx", spec=spec)
    assert OnnxInference(tmp_path / "p.onnx").metadata.obs_names == ("a", "b", "c", "d", "e")
    assert report.metadata.act_names == ("throttle", "steer[rad]")
    models.export_briefly(model, tmp_path / "q.onnx", spec=spec_of("row", "box"))
    (text,) = [p.value for p in onnx.load(tmp_path / "q.onnx").metadata_props]
    assert "names" not in text


def test_the_handshake_of_another_game_is_refused(tmp_path) -> None:
    with pytest.raises(ExportError, match="the engine's sizes are not the model's"):
        export_onnx(make(spec_of("row", "box")), tmp_path / "p.onnx", spec=EnvSpec(4, 2))


def test_nested_observations_are_refused_by_name(tmp_path) -> None:
    model = make(spec_of("row", "box"))
    inner = gym.spaces.Dict({"deep": gym.spaces.Discrete(2)})
    model.observation_space = gym.spaces.Dict({"outer": inner})
    with pytest.raises(ExportError, match=r"(?s)a Dict observation cannot be exported.*outer.*wrapper that flattens"):
        export_onnx(model, tmp_path / "p.onnx")


@pytest.mark.parametrize(
    "action", [pytest.param("discrete from 3", marks=pytest.mark.exhaustive), "multi_discrete", "multi_binary"]
)
def test_the_masks_of_a_maskable_policy_may_be_optional(tmp_path, action: str) -> None:
    spec = spec_of("row", action)
    model = make(spec, "MaskablePPO")
    path = tmp_path / "p.onnx"
    models.export_briefly(model, path, flat_input=True, optional_masks=True)
    policy, rows = OnnxInference(path), wire_rows(spec)
    size = spec.action_spec.mask_size
    masks = np.random.default_rng(0).random((N, size)) < 0.4
    at = 0
    for count in spec.action_spec.counts:  # one is always legal
        masks[np.arange(N), at + np.random.default_rng(at).integers(count, size=N)] = True
        at += count
    actions, _ = model.predict(
        Observations(spec, zero_based=True).of_rows(rows), action_masks=masks, deterministic=True
    )
    masked = policy.run_inference(rows, action_masks=masks)
    np.testing.assert_array_equal(masked, ActionWriter(spec, zero_based=True)(actions))
    free = policy.run_inference(rows)
    np.testing.assert_array_equal(free, wanted(model, spec, rows))
    assert (free != masked).any()
    # A runtime that knows one input and one output, as the Unreal plugin's, runs the file, too.
    session = onnxruntime.InferenceSession(path)
    assert [node.name for node in session.get_inputs()] == ["obs"]
    np.testing.assert_array_equal(session.run(["actions"], {"obs": rows})[0], free)
