"""The client's side over gRPC (docs/grpc.md): sessions as envs, or one session in real time.

Needs the extra `sessions`.
"""

from ue_rl.system.lazy import lazy

__getattr__, __dir__ = lazy(__name__, optional=("GrpcConnection", "SessionClient", "an_action", "numbers"))
