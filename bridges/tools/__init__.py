"""Tools: methods of a game, or functions, that minds which read may call by name with arguments in JSON.

`@tool` marks them, a ToolRegistry describes them by JSON schemas and checks arguments before a call.
"""

from __future__ import annotations

from ue_rl.bridges.tools.marking import tool
from ue_rl.bridges.tools.registry import ToolRegistry, ToolSchema
from ue_rl.system.errors import ToolError

__all__ = ["ToolError", "ToolRegistry", "ToolSchema", "tool"]
