"""What a stranger's run or file of options would start: it runs once it is trusted, and is known again then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ue_rl.cli import cli
from ue_rl.system.errors import ConfigurationError, UntrustedFile
from ue_rl.system.trust.files import trusting
from ue_rl.training.config import read_config, require_origin, signed_yaml
from ue_rl.training.directory import RunDirectory
from ue_rl.training.options import TrainOptions
from ue_rl.training.run import train


def test_a_run_of_a_stranger_starts_nothing(tmp_path: Path) -> None:
    mine, theirs = RunDirectory(tmp_path / "mine"), RunDirectory(tmp_path / "theirs")
    options = TrainOptions(engine="./game --port {port}")
    for run in (mine, theirs):
        run.checkpoints.mkdir(parents=True)
        run.write_config(options)
    text = theirs.config.read_text().replace("./game", "./thiefs")
    theirs.config.write_text(text)
    require_origin(mine.path, mine.read_config(), options)
    config = theirs.read_config()
    asked = TrainOptions(engine=config["engine"])
    with pytest.raises(UntrustedFile, match=r"not written here: it starts a program.*thiefs"):
        require_origin(theirs.path, config, asked)
    require_origin(theirs.path, config, options)  # another program was named
    with trusting():
        require_origin(theirs.path, config, asked)
    require_origin(theirs.path, config, asked, {"engine"})


@pytest.mark.parametrize(
    ("option", "seeds"),
    [
        ({"callback": "ran:It"}, None),
        ({"callback": "ran:It"}, 2),
        ({"env_wrapper": "ran:It"}, None),
        ({"trace": "TARGET"}, None),
    ],
)
def test_an_engine_of_ones_own_does_not_trust_the_rest_of_a_strangers_run(
    option: dict[str, str], seeds: int | None, tmp_path: Path
) -> None:
    run, kept = RunDirectory(tmp_path / "theirs"), tmp_path / "kept"
    run.checkpoints.mkdir(parents=True)
    kept.write_text("mine")
    given: dict[str, Any] = {name: value.replace("TARGET", str(kept)) for name, value in option.items()}
    text = TrainOptions(log_dir=str(tmp_path), seeds=seeds, **given).as_yaml()
    (run.path / ("config.yaml" if seeds is None else "seeds.yaml")).write_text(text)
    words = ["train", "--resume", "--log-dir", str(tmp_path), "--run-id", "theirs", "--env", "CartPole-v1"]
    done = CliRunner().invoke(cli, words)
    assert isinstance(done.exception, UntrustedFile), done.output
    assert kept.read_text() == "mine"


def test_a_file_of_options_starts_what_was_trusted_once(tmp_path: Path) -> None:
    """Of --config: another hyperparameter needs no new word, another program does."""
    file = tmp_path / "mine.yaml"
    words = ["train", "--config", str(file), "--log-dir", str(tmp_path), "--start-timeout", "60"]

    def told(engine: str, *more: str) -> BaseException | None:
        file.write_text(
            f"engine: {engine} {tmp_path}/ran {tmp_path}/{{port}}\nhyperparameters: {{n_steps: {len(more) + 8}}}\n"
        )
        (tmp_path / "ran").unlink(missing_ok=True)
        return CliRunner().invoke(cli, [*words, *more]).exception

    for engine, more, ran in (
        ("touch", (), False),
        ("touch", ("--engine", "true {port}"), False),
        ("touch", ("--trust",), True),
        ("touch", (), True),
        ("/bin/touch", (), False),
    ):
        refused = isinstance(told(engine, *more), UntrustedFile)
        assert (refused, (tmp_path / "ran").exists()) == (not ran and not more, ran), (engine, more)
    told_to = CliRunner().invoke(cli, words)
    assert "give --trust, once; or give what it names yourself" in str(told_to.exception)


def test_what_a_file_of_options_names_only_by_another_starts_nothing(tmp_path: Path) -> None:
    """An address whose pickles are read, and a class that RLlib would import."""
    for text in (
        "{backend: rllib, ray_address: 'thief:6379'}",
        "{backend: rllib, algo: dqn, hyperparameters: {replay_buffer_config: {type: stranger.Buffer}}}",
    ):
        (tmp_path / "theirs.yaml").write_text(text)
        words = ["train", "--config", str(tmp_path / "theirs.yaml"), "--log-dir", str(tmp_path / "runs")]
        done = CliRunner().invoke(cli, words)
        assert isinstance(done.exception, UntrustedFile), (text, done.exception)


def test_a_file_that_changes_between_two_looks_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "theirs.yaml"
    file.touch()
    texts = iter([f"engine: touch {tmp_path}/ran {tmp_path}/{{port}}", *["algo: ppo"] * 9])

    read_text = Path.read_text

    def changed(path: Path, *given: Any, **more: Any) -> str:
        if path == file and given:  # its options are read, and not its signature
            file.write_text(next(texts))
        return read_text(path, *given, **more)

    monkeypatch.setattr(Path, "read_text", changed)
    words = ["train", "--config", str(file), "--log-dir", str(tmp_path), "--start-timeout", "0.5"]
    assert isinstance(CliRunner().invoke(cli, words).exception, UntrustedFile)
    assert not (tmp_path / "ran").exists()


def test_the_same_words_start_another_program_in_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Signed or trusted in one folder, a relative path asks again in the next; an absolute one does not."""
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    for folder in (mine, theirs):
        folder.mkdir()
        (folder / "Game.sh").touch()
        (folder / "mine.py").touch()
    for given, elsewhere in (
        ({"engine": "sh ./Game.sh {port}"}, False),
        ({"callback": "mine:Counter"}, False),
        ({"engine": f"{mine}/Game.sh {{port}}"}, True),
    ):
        options = TrainOptions(**given)
        for folder, known in ((mine, True), (theirs, elsewhere)):
            monkeypatch.chdir(mine)
            text = signed_yaml(options)
            monkeypatch.chdir(folder)
            (folder / "config.yaml").write_text(text)
            if known:
                require_origin(folder, read_config(folder / "config.yaml"), options)
                continue
            with pytest.raises(UntrustedFile):
                require_origin(folder, read_config(folder / "config.yaml"), options)


@pytest.mark.parametrize(
    "text",
    [
        "x: 2026-13-45",
        "x: 0x_",
        "x: " + "[" * 3000,
        "x: " + "9" * 5000,
        "env_kwargs: &a {x: *a}",
        "env_kwargs:\n" + "\n".join(f"  {n}: &a{n} [{f'*a{n - 1}, ' * 9 if n else 'x'}]" for n in range(9)),
        f"algo: ppo #{'x' * (1 << 20)}",
    ],
)
def test_a_file_of_options_that_is_a_bomb_is_refused_by_name(text: str, tmp_path: Path) -> None:
    (tmp_path / "bomb.yaml").write_text(text)
    with pytest.raises(ConfigurationError, match=r"bomb\.yaml"):
        read_config(tmp_path / "bomb.yaml")


def test_keys_that_are_no_words_are_signed_too() -> None:
    options = TrainOptions(callback=[{"mine:Counter": {"every": {1: 2, "b": 3}}}])
    with pytest.raises(UntrustedFile, match="not written here"):
        require_origin(Path("nowhere"), vars(options), options)


@pytest.mark.parametrize("name", ["run.log", "engines/engine-0.log", "checkpoints"])
def test_a_run_with_a_link_in_it_is_not_gone_on_with(name: str, tmp_path: Path) -> None:
    options = TrainOptions(log_dir=str(tmp_path), run_id="theirs")
    run, kept = RunDirectory.create(tmp_path, "theirs", "", False, options), tmp_path / "kept"
    run.lock.__exit__(None, None, None)
    run.engines.mkdir()
    run.checkpoints.rmdir()
    kept.write_text("mine")
    (run.path / name).symlink_to(kept)
    with pytest.raises(UntrustedFile, match="go elsewhere"):
        train(options, resume=run)
    assert kept.read_text() == "mine"
