"""Sessions over gRPC (docs/grpc.md): `serve(pool, host, port)`. Needs the extra `sessions`.

Whoever reads any address imports this package, for the names of its schemes (client/carriers.py): grpc may be missing.
"""

from ue_rl.system.lazy import lazy

__getattr__, __dir__ = lazy(__name__, optional=("serve",))
