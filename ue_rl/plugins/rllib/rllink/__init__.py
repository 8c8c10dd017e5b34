"""RLlink: RLlib's protocol for simulators that own their loop and send episodes to a learner (docs/rllink.md).

Nothing here does I/O, and nothing from the wire is unpickled or evaluated. Neither ray, torch nor SB3 is needed.
"""
