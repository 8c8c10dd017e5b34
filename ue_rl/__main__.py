"""`python -m ue_rl` is `ue-rl`."""

from ue_rl.cli import main

main()
