"""Access: how a gRPC server is dialled: TLS by files, a token in each call, never a proxy for loopback.

gRPC itself asks the proxy of $http_proxy, $https_proxy or $grpc_proxy for 127.0.0.1, too.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import grpc

from ue_rl.connections.base.address import split_place
from ue_rl.plugins.sessions.limits import client_options
from ue_rl.protocol.access.server_access import is_local
from ue_rl.protocol.access.tls import trainer_context
from ue_rl.protocol.access.tokens import read_token
from ue_rl.protocol.access.visitors import bearer
from ue_rl.system.errors import ConfigurationError

_log = logging.getLogger(__name__)
_Name = str | PathLike[str]


class Access(NamedTuple):
    """What this side needs to be let in, and to know whom it talks to.

    Attributes:
        metadata: of each call; None: no token. credentials: None: plain text.
    """

    metadata: tuple[tuple[str, str], ...] | None = None
    credentials: grpc.ChannelCredentials | None = None

    @classmethod
    def of(
        cls,
        tls: bool = False,
        token_file: _Name | None = None,
        ca: _Name | None = None,
        cert: _Name | None = None,
        key: _Name | None = None,
    ) -> Access:
        """One from files.

        Args:
            tls: speak TLS; so do `ca`, whom to trust instead of the system's list, and `cert`, which this side shows.
            token_file: a secret of both sides. key: of `cert`; None: in the same file.

        Raises:
            ConfigurationError: a file cannot be used.
        """
        metadata = None
        if token_file is not None:
            metadata = (("authorization", bearer(read_token(token_file))),)
        if key is not None and cert is None:
            raise ConfigurationError("a key is for a certificate", field="cert", expected="a PEM file", got=None)
        if not tls and ca is None and cert is None:
            return cls(metadata)
        context = trainer_context(ca, cert, key)  # says which file is wrong; gRPC would not
        if ca is None:
            roots = _system_roots(context)
        else:
            roots = Path(ca).read_bytes()
        chain = None
        if cert is not None:
            chain = Path(cert).read_bytes()
        if key is None:
            own = chain
        else:
            own = Path(key).read_bytes()
        return cls(metadata, grpc.ssl_channel_credentials(roots, own, chain))

    def channel(self, library: Any, target: str, options: Sequence[tuple[str, Any]] = ()) -> Any:
        """A channel of `library`, grpc or grpc.aio, to HOST:PORT."""
        host, _ = split_place(target)
        told = [*client_options(), *options]
        if is_local(host):
            told.append(("grpc.enable_http_proxy", 0))
        if self.credentials is not None:
            return library.secure_channel(target, self.credentials, told)
        if self.metadata is not None and not is_local(host):
            _log.warning("the token for %s can be read on its way: dial grpcs://, where it speaks TLS", target)
        return library.insecure_channel(target, told)


def _system_roots(context: ssl.SSLContext) -> bytes | None:
    """The system's list of certificates, as other carriers have it: gRPC has one of its own; None: that one.

    What a folder holds is not in the context: OpenSSL looks there when it needs one.
    """
    found = [ssl.DER_cert_to_PEM_cert(der) for der in context.get_ca_certs(binary_form=True)]
    folder = ssl.get_default_verify_paths().capath
    if folder is not None:
        for path in sorted(Path(folder).glob("*.[0-9]")):
            found.append(path.read_text("ascii", "replace"))
    return "\n".join(found).encode("ascii", "replace") or None
