"""Exports whose converter makes another file than it should: what the comparison must find."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch as th

from tests.support.properties import rows_compared
from ue_rl.inference.export.file import ExportReport
from ue_rl.inference.export.graph import Plan, to_onnx
from ue_rl.inference.export.onnx import export_model

Converter = Callable[[Plan, int, str], tuple[bytes, str]]


def export_by(convert: Converter, model: Any, path: Path, **options: Any) -> ExportReport:
    """As export_onnx, with another converter."""
    return export_model(model, None, path, n_verify=rows_compared(), convert=convert, **options)


def of_another_net(change: Callable[[Any], object]) -> Converter:
    """Converts a net that `change` has made of the model's."""

    def convert(plan: Plan, opset: int, exporter: str) -> tuple[bytes, str]:
        net = copy.deepcopy(plan.net)
        with th.no_grad():
            change(net)
        return to_onnx(replace(plan, net=net), opset, exporter)

    return convert


def edited_by(*edits: Callable[[bytes], bytes]) -> Converter:
    """Changes the file one edit after another."""

    def convert(plan: Plan, opset: int, exporter: str) -> tuple[bytes, str]:
        content, used = to_onnx(plan, opset, exporter)
        for edit in edits:
            content = edit(content)
        return content, used

    return convert
