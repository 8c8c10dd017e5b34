"""The commands of RLlink."""
