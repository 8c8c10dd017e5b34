"""What the options of a run may be, alone and together: said by name before anything is started."""

from __future__ import annotations

from collections.abc import Mapping

from ue_rl.connections.dialling import address_of
from ue_rl.protocol.calls.parameters import as_ranges
from ue_rl.system.errors import ConfigurationError, nearest
from ue_rl.system.known import require_known
from ue_rl.training.algorithms import BACKENDS, IN_NUMPY, OFF_POLICY
from ue_rl.training.hyperparameters import tuned_for
from ue_rl.training.lessons import parse_curriculum
from ue_rl.training.options import DEFAULTS, ROWS, TrainOptions
from ue_rl.training.rows import BOTH, ONLY

_HER = ("n_sampled_goal", "goal_selection_strategy", "copy_info_dict")
_NORMALIZE = (
    "training", "norm_obs", "norm_reward", "clip_obs", "clip_reward", "gamma", "epsilon", "norm_obs_keys",
)  # fmt: skip
_STRATEGIES = ("future", "final", "episode")
_ON_POLICY = "ppo, a2c, trpo, maskable_ppo or recurrentppo"


def check_options(options: TrainOptions, *, resumed: bool = False) -> None:
    """Each option by its row in the table, and that they do not exclude each other.

    Args:
        resumed: they are to find a run, whose config says with which backend: what that has is not looked at.

    Raises:
        ConfigurationError: names the first option that is not what it may be.
    """
    if not resumed:
        _check_backend(options)
    for name, row in ROWS.items():
        value = getattr(options, name)
        if not (value is None and DEFAULTS[name] is None) and not row.kind.fits(value):
            raise ConfigurationError(f"must be {row.kind.words}", field=name, got=value)
    _check_engine(options)
    _check_learner(options)
    tuned_for(options)  # its schedules can be read
    _check_sections(options)
    _check_evaluation(options)
    check_teaching(options)


def _check_backend(o: TrainOptions) -> None:
    if o.backend not in list(BACKENDS):
        raise ConfigurationError(
            "no such backend",
            field="backend",
            expected=" or ".join(BACKENDS),
            got=o.backend,
            cure=nearest(str(o.backend), BACKENDS),
        )
    is_rllib = o.backend == "rllib"
    other = "rllib"
    if is_rllib:
        other = "sb3"
    if o.algo not in BACKENDS[o.backend]:
        problem = "no such algorithm"
        if is_rllib:
            problem = "RLlib is not offered with this algorithm"
        raise ConfigurationError(
            problem,
            field="algo",
            expected=", ".join(BACKENDS[o.backend]),
            got=o.algo,
            cure=f"train with --backend {other}" if o.algo in BACKENDS[other] else nearest(o.algo, BACKENDS[o.backend]),
        )
    for name, row in ROWS.items():
        value = getattr(o, name)
        if value in (DEFAULTS[name], {}):
            continue
        if row.rllib == ONLY and not is_rllib:
            cure = "train with --backend rllib, or leave it out"
            raise ConfigurationError("an option of RLlib", field=name, got=value, cure=cure)
        if row.rllib not in (ONLY, BOTH) and is_rllib:
            what = "the backend rllib does not have this option"
            raise ConfigurationError(what, field=name, got=value, cure=row.rllib)


def _check_learner(o: TrainOptions) -> None:
    if o.learner != "numpy":
        return
    cure = "leave it out, or say --learner auto"
    if o.algo not in IN_NUMPY:
        what = "NumPy does not learn this algorithm"
        raise ConfigurationError(what, field="learner", expected=f"algo {', '.join(IN_NUMPY)}", got=o.algo, cure=cure)
    if o.overlap:
        raise ConfigurationError("NumPy does not learn with --overlap", field="learner", got="overlap", cure=cure)


def _check_engine(o: TrainOptions) -> None:
    if o.vecnormalize is not None and o.init_from is None:
        what = "statistics for a model that is not given"
        cure = "add --init-from MODEL; for observations that are normalised from the start on say --normalize"
        raise ConfigurationError(what, field="vecnormalize", got=o.vecnormalize, cure=cure)
    remote = o.url is not None
    if o.env is not None and remote:
        cure = "give either --env, or the URL of an engine"
        raise ConfigurationError("an embedded env and a running engine exclude each other", field="env", cure=cure)
    if o.engine is not None and (remote or o.env is not None):
        what = "an engine that is started here excludes an embedded env and a running engine"
        raise ConfigurationError(what, field="engine", cure="give either --engine, or --env, or a URL")
    _check_used(o)
    named = [address_of(url).url for url in o.urls]
    if len(set(named)) < len(named):
        raise ConfigurationError("the same engine twice", field="url", got=", ".join(named))


def _check_used(o: TrainOptions) -> None:
    """Raises ConfigurationError: an option is given that this kind of engine, or this run, has no use for."""
    of_engines = [
        (name, o.engine_kind in row.engines.kinds, row.engines.words, row.elsewhere)
        for name, row in ROWS.items()
        if row.engines is not None and not row.tolerated
    ]
    for name, is_used, what, cure in (
        *of_engines,
        ("trace_size", o.trace is not None, "no trace is recorded", "add --trace FILE, or leave it out"),
        ("policy", o.init_from is None, "a model that is loaded has its policy", "leave it, or --init-from, out"),
    ):
        given = getattr(o, name)
        if not is_used and given not in (DEFAULTS[name], {}):
            raise ConfigurationError(f"{name} has no effect here: {what}", field=name, got=given, cure=cure)


def without_use(o: TrainOptions) -> list[str]:
    """A sentence for each option that engines of this kind have no use for, and that does not harm."""
    if o.backend != "sb3":  # RLlib's env runners have use for them over any engine
        return []
    said = []
    for name, row in ROWS.items():
        if row.engines is None or not row.tolerated or o.engine_kind in row.engines.kinds:
            continue
        if name == "restarts" and o.reconnect:  # it says how often such an engine is dialled again
            continue
        if getattr(o, name) != DEFAULTS[name]:
            said.append(f"{name} has no effect: {row.elsewhere}")
    return said


def _check_evaluation(o: TrainOptions) -> None:
    """Evaluation, films and several seeds: what they need of the other options."""
    if o.eval_url is not None and not o.eval_freq:
        raise ConfigurationError(
            "an engine for evaluations that are not made", field="eval_url", cure="add --eval-freq"
        )
    if o.eval_freq:
        if not o.evaluated:
            what = "an evaluation has at least one episode"
            cure = "leave --eval-episodes or --eval-freq out"
            raise ConfigurationError(what, field="eval_episodes", got=0, cure=cure)
        if o.self_play is not None or o.group is not None:
            what = "agents are not evaluated while they learn"
            cure = "leave it out: self_play.csv has their ratings"
            raise ConfigurationError(what, field="eval_freq", got=o.eval_freq, cure=cure)
        if o.urls and o.eval_url is None:
            what = (
                "an evaluation needs an engine of its own: in the one that learns it would end the episodes under way"
            )
            cure = "start another one, and give its address with --eval-url; or let --engine start them"
            raise ConfigurationError(what, field="eval_freq", got=o.eval_freq, cure=cure)
        if isinstance(o.eval_url, str):
            places = [o.eval_url]
        else:
            places = o.eval_url or []
        if {address_of(url).url for url in o.urls} & {address_of(url).url for url in places}:
            what = "the policy learns in this engine"
            cure = "give the address of another one"
            raise ConfigurationError(what, field="eval_url", got=o.eval_url, cure=cure)
    if o.video_freq and o.overlap:
        what = "no picture can be asked for while half of the envs are on their way"
        cure = "leave one of the two out"
        raise ConfigurationError(what, field="video_freq", got=o.video_freq, cure=cure)
    if o.jobs is not None and o.seeds is None:
        raise ConfigurationError("how many of --seeds run side by side", field="jobs", got=o.jobs, cure="add --seeds")
    if o.seeds is not None:
        _check_several(o)


def check_teaching(o: TrainOptions) -> None:
    """Raises ConfigurationError for what --bc and its kind cannot go with."""
    off_policy = o.algo in OFF_POLICY
    wrong = (
        ("bc", o.algo == "recurrentppo", o.algo, "an algorithm without a recurrent policy"),
        ("prefill", not off_policy, o.algo, "an algorithm with a replay buffer: sac, td3, ddpg, tqc, dqn or qrdqn"),
        ("prefill", o.her is not None, "her", "a run without hindsight"),
        *((name, off_policy, o.algo, _ON_POLICY) for name in ("gail", "rnd")),
        *((name, o.overlap, "overlap", "a run without --overlap") for name in ("gail", "rnd")),
    )
    for name, is_wrong, got, expected in wrong:
        if getattr(o, name) and is_wrong:
            what = f"--{name} does not go with this run"
            cure = "leave it out, or train as is expected"
            raise ConfigurationError(what, field=name, expected=expected, got=got, cure=cure)


def _check_several(o: TrainOptions) -> None:
    """What runs side by side cannot share."""
    for name, what, cure in (
        ("url", "each seed needs engines of its own", "let --engine or --env start them"),
        ("eval_url", "each seed needs an engine of its own for evaluations", "leave it out: one is started for each"),
        ("trace", "each seed would write the same file", "record one run: --seed instead of --seeds"),
    ):
        if getattr(o, name) is not None:
            raise ConfigurationError(what, field=name, got=getattr(o, name), cure=cure)
    if o.metrics is not None and o.metrics.rpartition(":")[2] != "0":
        what = "each seed would listen on the same port"
        cure = "--metrics 0 takes a free one; seed-N.log says which"
        raise ConfigurationError(what, field="metrics", got=o.metrics, cure=cure)


def _check_sections(options: TrainOptions) -> None:
    """What can be said of parameters, curriculum and HER before an engine is there."""
    as_ranges(options.params, "params")
    if isinstance(options.normalize, Mapping):
        require_known(options.normalize, _NORMALIZE, "VecNormalize has no such argument", "normalize")
    if options.curriculum is not None:
        parse_curriculum(options.curriculum)
    if options.self_play is not None:
        # Not above: ue_rl.envs imports Gymnasium, which a command that only shows its help is not to wait for.
        from ue_rl.envs.agents.selfplay_options import SelfPlayOptions

        SelfPlayOptions.of(options.self_play)
    if options.her is None:
        return
    if options.algo not in OFF_POLICY:
        raise ConfigurationError(
            "HER needs an algorithm with a replay buffer", field="her", expected=", ".join(OFF_POLICY), got=options.algo
        )
    require_known(options.her, _HER, "HER has no such argument", "her")
    strategy = options.her.get("goal_selection_strategy", "future")
    if strategy not in _STRATEGIES:
        raise ConfigurationError(
            "no such strategy", field="her.goal_selection_strategy", expected=", ".join(_STRATEGIES), got=strategy
        )
