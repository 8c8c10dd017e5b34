from ue_rl.plugins.sessions.grpc.server import serve as serve
