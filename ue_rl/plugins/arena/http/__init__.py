"""The arena over HTTP: what Agent Arena's clients post, and what they are answered."""
