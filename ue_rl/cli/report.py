"""`ue-rl report`: what a bug report needs, in one file: doctor, config, log, the end of a trace."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path

import click

from ue_rl.cli import completion
from ue_rl.cli.common import WrongCommandLine
from ue_rl.system.durable import amount, write_whole
from ue_rl.system.errors import printable

_MODELS = (".zip", ".pkl", ".onnx", ".pt", ".safetensors", ".data")
_MOST = 16 << 20  # bytes of any other file; of a longer one the end
_LEFT = "a model, left out: --models packs it"


@click.command(short_help="Pack a run's facts into one file.")
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path), shell_complete=completion.run_or_file)
@click.option(
    "-o", "--output", metavar="FILE", type=click.Path(path_type=Path), default="report.zip", show_default=True,
    help="The file to write.",
)  # fmt: skip
@click.option("--trace", metavar="FILE", type=click.Path(path_type=Path), help="The trace.  [default: the run's own]")
@click.option("--trace-size", type=click.IntRange(1), default=10, show_default=True, help="Megabytes of its end.")
@click.option("--models", is_flag=True, help="Pack models and checkpoints, too.")
def report(run: Path, output: Path, trace: Path | None, trace_size: int, models: bool) -> None:
    """Pack what ue-rl doctor says, and the files of RUN, into one file. Its contents.txt lists what is inside.

    Look through it before you send it: logs and configs hold paths, addresses, and what the game has written.
    """
    if not (run / "config.yaml").is_file():
        cure = "of a folder of several runs, name one of those in it"
        raise WrongCommandLine("not a run's folder", field="run", expected="config.yaml in it", got=str(run), cure=cure)
    from ue_rl.devtools.doctor import diagnose

    trace = trace or _trace_of(run)
    contents: list[str] = []

    def pack(path: Path) -> None:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:

            def put(name: str, data: bytes, note: str = "") -> None:
                archive.writestr(name, data)
                contents.append(f"{name}  {amount(len(data))}{note}")

            put("doctor.json", json.dumps([row.as_dict() for row in diagnose(None, run.parent)], indent=2).encode())
            for each in sorted(run.rglob("*")):
                name = printable(each.relative_to(run).as_posix())
                if each.is_symlink() or not each.is_file() or each.resolve() == output.resolve():
                    continue
                if each.suffix in _MODELS and not models:
                    contents.append(f"{name}  {_LEFT}")
                elif each.suffix in _MODELS:
                    archive.write(each, f"run/{name}")
                    contents.append(f"run/{name}  {amount(each.stat().st_size)}")
                else:
                    data, cut = _end_of(each)
                    put(f"run/{name}", data, cut)
            if trace is not None:
                from ue_rl.devtools.recording import Trace

                put("trace", Trace(trace).tail(trace_size * 1_000_000), printable(f", the end of {trace}"))
            archive.writestr("contents.txt", "\n".join([*contents, ""]))

    write_whole(output, pack)
    click.echo("\n".join([*contents, f"{output}: {amount(output.stat().st_size)}"]))


def _trace_of(run: Path) -> Path | None:
    """What the run was told to record into, where that is still there; read without the package that writes it."""
    found = re.search(r"^trace: (.+)$", (run / "config.yaml").read_text("utf-8", "replace"), re.MULTILINE)
    path = None if found is None else Path(found[1].strip().strip("'\""))
    return path if path is not None and path.is_file() else None


def _end_of(path: Path) -> tuple[bytes, str]:
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(size - _MOST, 0))
        return file.read(_MOST), f", the last of {amount(size)}" if size > _MOST else ""
