"""The schemes of gRPC, for the entry points of setup.cfg: sessions of a game (`ue-rl sessions`), each an env.

grpc://HOST:PORT   as many sessions as num_envs says
grpcs://HOST:PORT  the same within TLS
"""

from ue_rl.connections.base.address import Scheme, host_and_port
from ue_rl.connections.dialling import DEADLINES, SchemeHandler

_OPTIONS = ("num_envs", "ticks", "token_file", "ca", "cert", "key", *DEADLINES)

GRPC = SchemeHandler(
    Scheme("grpc://HOST:PORT", "grpc://127.0.0.1:9999", host_and_port, _OPTIONS),
    "ue_rl.plugins.sessions.grpc.client.dialling:dial",
)
GRPCS = SchemeHandler(
    Scheme("grpcs://HOST:PORT", "grpcs://10.0.0.5:9999?ca=ours.pem", host_and_port, _OPTIONS),
    "ue_rl.plugins.sessions.grpc.client.dialling:dial_tls",
)
