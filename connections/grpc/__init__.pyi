# The names of this package, each imported when it is first used (ue_rl/system/lazy.py).
from ue_rl.connections.grpc.client import SessionClient as SessionClient
from ue_rl.connections.grpc.client import an_action as an_action
from ue_rl.connections.grpc.client import numbers as numbers
from ue_rl.connections.grpc.connection import GrpcConnection as GrpcConnection
