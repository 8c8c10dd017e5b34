# The names of this package, each imported when it is first used (ue_rl/system/lazy.py).
from ue_rl.plugins.sessions.grpc.client.client import SessionClient as SessionClient
from ue_rl.plugins.sessions.grpc.client.client import an_action as an_action
from ue_rl.plugins.sessions.grpc.client.client import numbers as numbers
from ue_rl.plugins.sessions.grpc.client.connection import GrpcConnection as GrpcConnection
