"""ReloadingInference: a policy that is replaced when its file changes.

A changed file is read whole and loaded beside the model in use: names and sizes are checked, and it is run once. Only
if its numbers mean what those of the model in use mean (interface.py) does it take over, between two calls. Otherwise
the old model stays, a WARNING is logged once per content, and the file is checked again at each poll. Writers should
replace the file in one step, as export_onnx does; a file that is written in place is picked up when it is complete.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
import time
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.inference.interface import InferenceInterface, ModelPath, Observations, between_files
from ue_rl.inference.metadata import PolicyMetadata
from ue_rl.inference.runtime.loading import unreadable
from ue_rl.inference.runtime.onnx import OnnxInference
from ue_rl.protocol.spaces.names import Names
from ue_rl.protocol.spaces.tree import Space
from ue_rl.system.errors import ConfigurationError, InferenceError, ModelLoadError, ModelMismatch
from ue_rl.system.files import require_file

logger = logging.getLogger(__name__)


class ReloadingInference(InferenceInterface):
    """An OnnxInference that is replaced when its file changes.

    Safe to use from several threads as far as OnnxInference is. A new file resets the states of a recurrent policy. One
    that is pickled or deep-copied follows the same file, if it is loaded where that is.

    Args:
        path: the file to follow; None to call load_model later.
        interval: seconds between two checks of the file by a background thread; None: no thread, the owner calls
            poll() when it suits, such as between two ticks.
        options: as OnnxInference.

    Raises:
        ModelLoadError, ModelMismatch, ModelOutputError: the first model cannot be used.

    Attributes:
        reloads: newer files that took over. loaded_at: time.time() when the model in use did.
    """

    def __init__(self, path: ModelPath | None = None, *, interval: float | None = 1.0, **options: Any) -> None:
        if interval is not None and interval <= 0:
            raise ConfigurationError("must be greater than 0, or None", field="interval", got=interval)
        self._interval = interval
        self._options = options
        self._path: Path | None = None
        self._current: OnnxInference | None = None
        self._signature: tuple[int, int, int] | None = None
        self._digest = b""
        self._refused = b""
        self._loading = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.reloads = 0
        self.loaded_at = 0.0
        if path is not None:
            self.load_model(path)

    def load_model(self, path: ModelPath) -> None:
        """Load `path` now, whatever its sizes, and follow it from here on."""
        with self._loading:
            source = Path(path)
            content, signature, digest = _read(source)
            self._use(self._load(content, source), signature, digest)
            self._path = source
        self._begin_following()

    def poll(self) -> bool:
        """Load the file if it is another than before; True if a new model took over. A bad file never raises."""
        with self._loading:
            if self._path is None or self._current is None:
                return False
            try:
                if not self._refused and _signature(self._path) == self._signature:
                    return False
                content, signature, digest = _read(self._path)
            except (OSError, ModelLoadError) as error:
                self._report(b"unreadable", error)
                return False
            if digest == self._digest:
                self._signature = signature
                self._refused = b""
            if digest in (self._digest, self._refused):
                return False
            try:
                fresh = self._load(content, self._path)
                obs_size = self._current.obs_size
                act_size = self._current.act_size
                if obs_size is not None and act_size is not None:
                    fresh.require(obs_size, act_size)
                _require_as_before(self._current.metadata, fresh.metadata)
                if fresh.needs_masks and not self._current.needs_masks:
                    raise ModelMismatch(
                        "it must be told which choices are legal, and the one in use need not",
                        fault="model",
                        field="action_masks",
                        cure="export it with `ue-rl export --masks optional`, or restart with this file",
                    )
            except InferenceError as error:
                self._report(digest, error)
                return False
            self._use(fresh, signature, digest)
            self.reloads += 1
            logger.info("%s changed: the new model is in use", self._path)
            return True

    def __getstate__(self) -> dict[str, Any]:
        """All but what belongs to this process: lock and thread."""
        return {name: value for name, value in self.__dict__.items() if name not in ("_loading", "_stop", "_thread")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Goes on with the model in use; raises as OnnxInference does."""
        vars(self).update(state)
        self._loading = threading.Lock()
        self._stop = threading.Event()
        self._thread = None
        if self._path is not None:
            self._begin_following()

    def _begin_following(self) -> None:
        if self._interval is not None and self._thread is None:
            self._thread = threading.Thread(target=self._follow, name="ue_rl model reload", daemon=True)
            self._thread.start()

    def _load(self, content: bytes, path: Path) -> OnnxInference:
        fresh = OnnxInference(**self._options)
        fresh.load_bytes(content, name=str(path))
        return fresh

    def _use(self, model: OnnxInference, signature: tuple[int, int, int], digest: bytes) -> None:
        self._current = model  # one assignment: a call under way ends on the old model
        self._signature = signature
        self._digest = digest
        self._refused = b""
        self.loaded_at = time.time()

    def _report(self, digest: bytes, error: Exception) -> None:
        if digest != self._refused:
            logger.warning("%s changed but cannot be used; the model before stays in use: %s", self._path, error)
            self._refused = digest

    def _follow(self) -> None:
        assert self._interval is not None
        while not self._stop.wait(self._interval):
            try:
                self.poll()
            except Exception:  # the thread must survive anything; the owner sees it in the log
                logger.exception("checking %s for changes failed", self._path)

    def close(self) -> None:
        """Stop following; the model stays usable. Idempotent."""
        self._stop.set()
        thread = self._thread
        self._thread = None
        if thread is not None:
            thread.join()

    def __enter__(self) -> ReloadingInference:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def path(self) -> Path | None:
        """The file that is followed; None before the first one."""
        return self._path

    @property
    def current(self) -> OnnxInference:
        """The model in use; hold on to it to make several calls on the same one."""
        if self._current is None:
            raise ModelLoadError("no model is loaded", cure="call load_model first")
        return self._current

    def is_model_loaded(self) -> bool:
        """Whether a model is in use."""
        return self._current is not None

    def run_inference(
        self, observations: Observations, *, action_masks: NDArray[Any] | None = None
    ) -> NDArray[np.float32]:
        """As OnnxInference.run_inference, on the newest usable model."""
        return self.current.run_inference(observations, action_masks=action_masks)

    def run_inference_for(
        self, agents: Sequence[Hashable], observations: Observations, *, action_masks: NDArray[Any] | None = None
    ) -> NDArray[np.float32]:
        """As OnnxInference.run_inference_for, on the newest usable model."""
        return self.current.run_inference_for(agents, observations, action_masks=action_masks)

    @property
    def takes_masks(self) -> bool:
        """As OnnxInference.takes_masks, of the newest usable model."""
        return self.current.takes_masks

    @property
    def needs_masks(self) -> bool:
        """As OnnxInference.needs_masks, of the newest usable model."""
        return self.current.needs_masks

    def reset(self, rows: Sequence[Any] | None = None) -> None:
        """As OnnxInference.reset."""
        if self._current is not None:
            self._current.reset(rows)

    @property
    def obs_size(self) -> int | None:
        """Numbers per observation of the model in use."""
        if self._current:
            return self._current.obs_size
        return None

    @property
    def act_size(self) -> int | None:
        """Numbers per action of the model in use."""
        if self._current:
            return self._current.act_size
        return None

    @property
    def spaces(self) -> tuple[Space | None, Space | None]:
        """As OnnxInference.spaces, of the model in use."""
        if self._current:
            return self._current.spaces
        return (None, None)

    @property
    def number_names(self) -> Names:
        """As OnnxInference.number_names, of the model in use."""
        if self._current:
            return self._current.number_names
        return ((), ())


def _require_as_before(old: PolicyMetadata | None, new: PolicyMetadata | None) -> None:
    """Raises ModelMismatch where a file's numbers mean something else than those of the file in use."""
    if old is None:
        return
    if new is None:
        raise ModelMismatch(
            "the file says nothing of its observations and actions, and the one in use does",
            fault="model",
            field="metadata",
            cure="export it with ue_rl",
        )
    if old.sha256 and not new.sha256:
        raise ModelMismatch(
            "whether the file is whole cannot be told: it has no sha256, and the one in use does",
            fault="model",
            field="sha256",
            cure="export it with this version of ue_rl, or restart with this file",
        )
    found = between_files(old, new)
    if found is not None:
        part = found.field.partition(".")[0].replace("_", " ")
        raise ModelMismatch(
            f"the {part} is another one",
            fault="model",
            **found._asdict(),
            cure="restart with this file if the change is intended",
        )


def _signature(path: Path) -> tuple[int, int, int]:
    stat = os.stat(path)
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def _read(path: Path) -> tuple[bytes, tuple[int, int, int], bytes]:
    """Content, signature and digest; the signature is from before, so that the next poll notices a change meanwhile."""
    try:
        require_file(path)
        signature = _signature(path)
        content = path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from error
    return content, signature, hashlib.sha256(content).digest()
