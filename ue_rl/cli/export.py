"""`ue-rl export`: a trained model as a verified ONNX file."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import click

from ue_rl.cli.common import console, two_columns
from ue_rl.errors import printable


@click.command(short_help="Write a verified ONNX file.")
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--vecnormalize", type=click.Path(path_type=Path), help="The statistics that VecNormalize saved.")
@click.option("--output", "-o", type=click.Path(path_type=Path), help="The file to write.  [default: MODEL.onnx]")
@click.option(
    "--connect", metavar="URL", help="Ask this engine for the names of its numbers and the order of its parts."
)
@click.option("--algo", help="The algorithm of the zip file.  [default: found out from the file]")
@click.option("--stochastic", is_flag=True, help="Sample actions: a further input takes the noise.")
@click.option("--flat", is_flag=True, help="One flat input for Dict observations, as the Unreal plugin needs it.")
@click.option(
    "--tolerance", type=float, help="Up to this difference, relative to the action range, an action equals predict()'s."
)
def export(
    model: Path, vecnormalize: Path | None, output: Path | None, algo: str | None, stochastic: bool, flat: bool,
    tolerance: float | None, connect: str | None,
) -> None:  # fmt: skip
    """Turn a model.zip into an ONNX file that acts as predict(deterministic=True) does, or refuse.

    With a run of `ue-rl train` the statistics and the handshake beside the model are found by themselves.
    """
    from ue_rl.inference import load_and_export

    stats = vecnormalize or beside(model)
    spec = _handshake(model, connect)
    options: dict[str, Any] = {} if tolerance is None else {"tolerance": tolerance}
    options |= {"algorithm": algo, "stochastic": stochastic, "flat_input": flat, "spec": spec}
    report = load_and_export(model, output, stats, **options)
    table = two_columns()
    table.add_row("file", f"{report.path} ({report.num_bytes / 1024:.0f} KiB)")
    table.add_row("policy", f"{report.algorithm}, {report.metadata.obs_size} -> {report.metadata.act_size} numbers")
    for side, ports in _ports(report.path).items():
        for number, port in enumerate(ports):
            table.add_row(side if number == 0 else "", port)
    for side, names in (("observation", report.metadata.obs_names), ("action", report.metadata.act_names)):
        if names:
            table.add_row(f"{side} names", printable(", ".join(names)))
    table.add_row("normalisation", str(stats) if stats else "none")
    table.add_row("compared", f"{report.observations} observations with predict()")
    table.add_row("largest difference", f"{report.max_abs_difference:.3g}")
    for kind, difference in report.max_relative_difference.items():
        table.add_row(f"  {kind}", f"{difference:.3g} of the action range")
    if report.rounded or report.ties:
        text = f"{report.rounded} observations, and {report.ties} ties between choices"
        if report.rounded:
            text += f"; from exact: file {report.file_error:.3g}, predict() {report.predict_error:.3g} of the range"
        table.add_row("equal but for rounding", text)
    console().print(table)


def _ports(path: Path) -> dict[str, list[str]]:
    """The inputs and outputs as the file itself names them, such as `obs float32 [N, 4]`; N is any number of rows."""
    import onnx

    graph = onnx.load(str(path)).graph
    sides = {"inputs": graph.input, "outputs": graph.output}
    return {side: [_port(value, onnx.helper) for value in values] for side, values in sides.items()}


def _port(value: Any, helper: Any) -> str:
    tensor = value.type.tensor_type
    rows, *sizes = tensor.shape.dim
    shape = ", ".join([str(rows.dim_value or "N"), *(str(size.dim_value) for size in sizes)])
    return f"{value.name} {helper.tensor_dtype_to_np_dtype(tensor.elem_type)} [{shape}]"


def _handshake(model: Path, url: str | None) -> Any:
    """The EnvSpec of the engine at `url`; else of the handshake that `ue-rl train` left beside the model, or None."""
    from ue_rl.training.directory import HANDSHAKE
    from ue_rl.wire.handshake import decode_handshake

    if url is not None:
        from ue_rl.connecting import open_transport

        with closing(open_transport(url)) as transport:
            return transport.connect()
    for folder in (model.parent, model.parent.parent):
        path = folder / HANDSHAKE
        if path.exists():
            return decode_handshake(path.read_bytes())
    return None


def beside(model: Path) -> Path | None:
    """The statistics that `ue-rl train` puts beside a model or a checkpoint."""
    for name in (f"{model.stem}_vecnormalize.pkl", "vecnormalize.pkl"):
        if (model.parent / name).exists():
            return model.parent / name
    return None
