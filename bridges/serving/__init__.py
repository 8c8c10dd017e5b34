"""What the carriers of sessions share: a server in a thread, waiting for a place in the queue, the tools of every game.

They see the pool (ue_rl/plugins/sessions/realtime/) through its interface alone, and each other never.
"""
