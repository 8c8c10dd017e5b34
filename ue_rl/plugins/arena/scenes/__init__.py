"""Scenes: small deterministic games with tools, metrics and films; each is also an engine that a policy trains in."""

from __future__ import annotations

from ue_rl.plugins.arena.scenes.bridge import SceneBridge, TeamBridge
from ue_rl.plugins.arena.scenes.capture import Capture
from ue_rl.plugins.arena.scenes.crafting import Crafting
from ue_rl.plugins.arena.scenes.foraging import Foraging
from ue_rl.plugins.arena.scenes.scene import Scene

SCENES: dict[str, type[Scene]] = {scene.name: scene for scene in (Foraging, Crafting, Capture)}

__all__ = ["SCENES", "Capture", "Crafting", "Foraging", "Scene", "SceneBridge", "TeamBridge"]
