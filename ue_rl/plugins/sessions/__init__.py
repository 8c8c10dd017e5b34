"""Messages of sessions over gRPC: sessions.proto, its code by .ci/protos, what both sides agree on."""
