"""Made by flatc 25.12.19 from ue_rl/schema/command.fbs; do not edit. See docs/shared-memory.md, section 5."""
