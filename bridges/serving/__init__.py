"""What the carriers of sessions share: a server in a thread, waiting for a place in the queue, the tools of every game.

They see the pool (bridges/realtime/) through its interface alone, and each other never.
"""
