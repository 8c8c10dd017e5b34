"""Messages beside the steps, whatever carries them (docs/commands.md)."""

from ue_rl.protocol.commands.envelope import Method as Method
from ue_rl.protocol.commands.envelope import decode as decode
from ue_rl.protocol.commands.envelope import encode as encode
from ue_rl.protocol.commands.envelope import messages as messages
from ue_rl.protocol.commands.envelope import text as text
