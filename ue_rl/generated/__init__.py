"""Made by flatc 25.12.19 from ue_rl/schema/command.fbs; do not edit. How: docs/commands.md."""
