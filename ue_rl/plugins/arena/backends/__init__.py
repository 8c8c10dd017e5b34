"""Models that answer prompts: behind a service, in this process, or scripted."""

from __future__ import annotations

from ue_rl.plugins.arena.backends.base import Answer, Backend, BackendRefused, ScriptedBackend, decision_schema
from ue_rl.plugins.arena.backends.llama import LlamaBackend
from ue_rl.plugins.arena.backends.openai_api import OpenAIBackend

__all__ = ["Answer", "Backend", "BackendRefused", "LlamaBackend", "OpenAIBackend", "ScriptedBackend", "decision_schema"]
