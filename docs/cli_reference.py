"""Every command and option of `ue-rl`, for docs/cli.md on the site: what its help says, and examples.

python docs/cli_reference.py prints it.
"""

from __future__ import annotations

import contextlib
import inspect
import re
import textwrap

import click

from ue_rl.cli import COMMANDS, cli
from ue_rl.cli.common import URL_HELP, GroupedCommand
from ue_rl.plugins.sessions.cli.sessions_replay import replay

EXAMPLES = {
    "train": """\
ue-rl train --env Pendulum-v1 --algo sac --timesteps 20000
ue-rl train --port 7777 --wait 60s
ue-rl train --page samples/web/carts --headless
ue-rl train --engine './Game.sh --port {port} --envs {num_envs}' --num-engines 4
ue-rl train tcp://a:7001 tcp://b:7001 --reconnect 60s
ue-rl train --resume --run-id ppo-CartPole-v1-3 --timesteps 300000
""",
    "runs compare": "ue-rl runs compare ppo-CartPole-v1-1 ppo-CartPole-v1-2\n",
    "serve": """\
ue-rl serve --env CartPole-v1 --num-envs 8 --port 7777
ue-rl serve --bridge my_game:MyBridge --num-envs 4
""",
    "sessions": """\
ue-rl sessions my_game:Game --tcp 7777 --num-envs 16
ue-rl sessions my_game:Game --tick-rate 25 --max-sessions 64 --record replays --tcp 7777
""",
    "sessions replay": "ue-rl sessions replay replays/1.replay --gif film.gif\n",
    "check": """\
ue-rl check 127.0.0.1:7777
ue-rl check --engine './Game.sh --port {port}'
""",
    "export": """\
ue-rl export runs/first
""",
    "replay": """\
ue-rl replay run.trace --port 7777
ue-rl replay run.trace tcp://127.0.0.1:7777
""",
    "trace": "ue-rl trace show run.trace --messages 50\n",
    "doctor": "ue-rl doctor tcp://127.0.0.1:7777 --output doctor.txt\n",
    "play": "ue-rl play runs/first --env CartPole-v1 --episodes 5 --gif agent.gif\n",
    "arena": """\
ue-rl arena run foraging --behavior rules --out runs/rules --gif rules.gif
ue-rl arena eval foraging --behavior rules --behavior random
ue-rl arena inspect runs/rules --html rules.html
ue-rl arena replay runs/rules/replay.trace
ue-rl arena serve --agent scout=rules
""",
}
MORE = {
    "train": "What you can set: [training](training.md). What a run's folder holds: [saving](saving.md).",
    "runs": "See [saving](saving.md#look-at-runs).",
    "sessions": "See [games that do not wait](realtime.md).",
    "init": "What `--tune` writes: [tuning](tuning.md).",
    "check": "See [checking](checking.md).",
    "export": "See [deploy](deploy.md).",
    "doctor": "See [operating](operating.md#doctor).",
    "replay": "See [operating](operating.md#recordings).",
    "policy-server": "See [policy server](policy-server.md).",
    "rllink": "See [RLlink](rllink.md).",
    "arena": "See [agents that reason](arena.md).",
}
WIDTH = 112


def commands() -> str:
    """A section for each command."""
    context = click.Context(cli, info_name="ue-rl")
    out, seen = [], {}
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        out.append(section(name, command, seen))
        if isinstance(command, click.Group):
            out += [section(f"{name} {each.name}", each, seen) for each in command.commands.values()]
        if name == "sessions":
            out.append(section("sessions replay", replay, seen).replace("\n## ", "\n### ", 1))
    return "".join(out)


def section(name: str, command: click.Command, seen: dict[tuple[str, str], str]) -> str:
    """One command: what it does, examples, its options as its help groups them.

    Args:
        seen: the options of the commands before, and whose they are; gets those of this one.
    """
    arguments = [each for each in command.params if isinstance(each, click.Argument)]
    words = "".join(f" {each.metavar or str(each.name).upper()}" for each in arguments)
    text = inspect.cleandoc(command.help or "").replace(URL_HELP, "URL: see [addresses](#addresses).")
    text = re.sub(r"\x08\n((?:.+\n)+)", r"```text\n\1```\n", f"{text}\n").rstrip("\n")
    out = [f"\n## {name}{words}\n\n{text}\n"]
    if name in EXAMPLES:
        out.append(f"\n```bash\n{EXAMPLES[name]}```\n")
    if name in MORE:
        out.append(f"\n{MORE[name]}\n")
    if isinstance(command, click.Group) and not command.params:
        return "".join(out)
    groups = command.grouped(click.Context(command)) if isinstance(command, GroupedCommand) else {"": command.params}
    formatter, same = click.HelpFormatter(width=WIDTH), {}
    for title, parameters in groups.items():
        rows = []
        for row in map(described, parameters):
            if row and (whose := seen.setdefault(row, name)) != name:
                same.setdefault(whose, []).append(row[0])
            elif row:
                rows.append(row)
        with formatter.section(title) if title and rows else contextlib.nullcontext():
            if rows:
                formatter.write_dl(rows)
    lines = formatter.getvalue().strip("\n").splitlines()
    for whose, names in same.items():
        lines += textwrap.wrap(f"As of {whose}: {', '.join(names)}", WIDTH, break_on_hyphens=False)
    return "".join([*out, "\n```text\n", *(f"{line.rstrip()}\n" for line in lines), "```\n"] if any(lines) else out)


def described(parameter: click.Parameter) -> tuple[str, str] | None:
    """What is typed and what it means; None: no option, or --help, which all have."""
    if not isinstance(parameter, click.Option) or "--help" in parameter.opts:
        return None
    said = re.fullmatch(r"(.*?)(?:\s+\[default: (.*)\])?", parameter.help or "", re.S)
    assert said is not None
    meaning, default = " ".join(said[1].split()), said[2]
    if parameter.show_default:
        default = f"{parameter.default:g}" if isinstance(parameter.default, float) else str(parameter.default)
    names = ", ".join(sorted(parameter.opts, key=len))
    if parameter.is_flag:
        meaning += f" Default: {default}." if default and parameter.secondary_opts else ""
        return "/".join([names, *parameter.secondary_opts]), meaning
    value = parameter.metavar or parameter.type.name.upper().removesuffix(" RANGE")
    if isinstance(parameter.type, click.Choice):
        value = "|".join(parameter.type.choices)
        meaning += "" if default == parameter.type.choices[0] else f" Default: {default}."
    elif default and " " not in default and (default[0].isdigit() or not parameter.type.name.startswith(("i", "f"))):
        value = default
    elif default:
        meaning += f" Default: {default}."
    return f"{names}{' ' if '=' in value else '='}{value}", meaning


if __name__ == "__main__":
    print(commands())
