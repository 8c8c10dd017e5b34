"""`ue-rl completion`: what makes a shell complete commands, options, presets, runs and addresses. click does the work.

Only imported for the command itself, and where a shell asks (the variable _UE_RL_COMPLETE). What completes a value is
in complete.py.
"""

from __future__ import annotations

from typing import Any

import click
from click.shell_completion import BashComplete, CompletionItem, add_completion_class, get_completion_class


@click.command(short_help="Make the shell complete commands.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print what makes SHELL complete commands, options, presets, runs and addresses.

    \b
    bash: in ~/.bashrc                    eval "$(ue-rl completion bash)"
    zsh:  in ~/.zshrc, behind compinit    eval "$(ue-rl completion zsh)"
    fish: once     ue-rl completion fish > ~/.config/fish/completions/ue-rl.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(context.find_root().command, {}, "ue-rl", "_UE_RL_COMPLETE").source())


class Bash(BashComplete):
    """Bash takes a word apart at ":" and "=", and is told only what stands behind the last of them."""

    name = "bash"
    source_template = BashComplete.source_template.replace(
        "COMPREPLY+=($value)", 'COMPREPLY+=("$value"); [[ $value == *[:/] ]] && compopt -o nospace'
    )
    _told = ""  # how the value begins that is completed, up to its last ":"

    def get_completion_args(self) -> tuple[list[str], str]:
        """See ShellComplete; the parts of a word are one word again."""
        args, incomplete = super().get_completion_args()
        words: list[str] = []
        for word in [*args, incomplete]:
            if words and (word[:1] in (":", "=") or words[-1][-1:] in (":", "=")):
                words[-1] += word
            else:
                words.append(word)
        value = words[-1].partition("=")[2] if words[-1].startswith("-") else words[-1]
        self._told = value[: value.rfind(":") + 1]
        return words[:-1], words[-1]

    def format_completion(self, item: CompletionItem[Any]) -> str:
        """See ShellComplete."""
        return f"{item.type},{item.value.removeprefix(self._told)}"


add_completion_class(Bash)  # not as a decorator: click 8.1.0 returns nothing
