"""The engine's side over TCP: an asyncio server that hosts a bridge."""
