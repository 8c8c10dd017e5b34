"""Files that another tool has made of an exported one: quantised, optimised, with a fixed batch, or as .ort.

Such a file has a description whose sha256 is no longer true, or none. It is sealed again once it was compared with the
model that the first file was made of, by the rule for those (verify.py).
"""

from __future__ import annotations

from dataclasses import replace

from ue_rl.inference.metadata import METADATA_KEY, UNSEALED, PolicyMetadata, seal, unsealed
from ue_rl.system.errors import ExportError
from ue_rl.system.onnx_runtime import import_onnxruntime

_ORT_MARK = b"ORTM"  # the identifier of a flatbuffer, bytes 4 to 7


def is_ort_format(content: bytes) -> bool:
    """Whether a file is of onnxruntime's own format (.ort), which onnx cannot read."""
    return content[4:8] == _ORT_MARK


def description_in(content: bytes) -> PolicyMetadata | None:
    """The description in a file, whatever was done to it; None without one.

    Raises:
        ExportError: onnxruntime cannot read it. ModelLoadError, ModelMismatch: its description is none.
    """
    ort = import_onnxruntime()
    options = ort.SessionOptions()
    options.log_severity_level = 4
    try:
        session = ort.InferenceSession(content, sess_options=options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's errors share no base class of their own
        raise ExportError(
            "onnxruntime cannot read this file",
            fault="model",
            field="adopt",
            got=f"{type(error).__name__}: {error}",
            cure="make it again, with weights in the file itself and operators that onnxruntime has",
        ) from error
    text = session.get_modelmeta().custom_metadata_map.get(METADATA_KEY)
    if text is None:
        return None
    return PolicyMetadata.from_json(text)


def described(content: bytes, metadata: PolicyMetadata) -> tuple[bytes, str]:
    """The file with this description, sealed, and its sha256; metadata of other tools stay.

    A file of onnxruntime's format keeps the description that it has: it cannot be written anew.

    Raises:
        ExportError: such a file without a description.
    """
    if is_ort_format(content):
        bare = unsealed(content)
        if bare is None:
            raise ExportError(
                "a file of onnxruntime's format without a description cannot be given one",
                fault="model",
                field="adopt",
                expected="a file made of one that ue_rl wrote",
                got="no sha256",
                cure="adopt the .onnx file first, then convert that one and adopt the .ort file",
            )
        return seal(bare)
    import onnx

    proto = onnx.load_from_string(content)
    others = [prop for prop in proto.metadata_props if prop.key != METADATA_KEY]
    del proto.metadata_props[:]
    proto.metadata_props.extend(others)
    proto.metadata_props.add(key=METADATA_KEY, value=replace(metadata, sha256=UNSEALED).to_json())
    whole: bytes = proto.SerializeToString()  # type: ignore[no-untyped-call]
    return seal(whole)
