"""A web page as engine: it dials the trainer by WebSocket (docs/browser.md); its side is samples/web/ue_rl.js."""
