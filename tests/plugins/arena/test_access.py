"""Who may ask an arena: a token within TLS, right, wrong and missing."""

from __future__ import annotations

import ssl
from pathlib import Path

import httpx
import pytest

from ue_rl.plugins.arena import AgentArena
from ue_rl.protocol.access.server_access import ServerAccess

CERTS = Path(__file__).parents[2] / "security" / "certs"


def test_who_knows_the_token_is_served(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("a secret of these tests, no other\n")
    token.chmod(0o600)
    arena = AgentArena.connect(port=0, access=ServerAccess(token_file=token, tls_cert=CERTS / "engine.pem"))
    try:
        url = arena.start().url
        assert url.startswith("https://127.0.0.1:")
        context = ssl.create_default_context(cafile=CERTS / "ca.pem")
        with httpx.Client(verify=context, timeout=20, trust_env=False) as client:
            health = f"{url}/health"
            right = f"Bearer {token.read_text().strip()}"
            assert client.get(health, headers={"Authorization": right}).status_code == 200
            for headers in ({}, {"Authorization": "Bearer another secret"}, {"Authorization": "Basic abc"}):
                answer = client.get(health, headers=headers)
                assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
                assert "token" in answer.json()["error"]
            with pytest.raises(httpx.TransportError):
                client.get(health.replace("https", "http"))
    finally:
        arena.stop()
