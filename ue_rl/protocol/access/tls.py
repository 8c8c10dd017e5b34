"""TLS: contexts from files, and what its failures mean in words."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike

from ue_rl.system.errors import AccessRefused, ConfigurationError, words_of

Name = str | PathLike[str]
_OF_CERTIFICATES = {
    9: "is not valid yet",
    10: "has expired",
    18: "is signed by itself",
    19: "is signed by somebody whom this side does not know",
    20: "is signed by somebody whom this side does not know",
    62: "is of another host",
    64: "is of another host",
}
_CURES = {
    "is not valid yet": "is the clock of this machine right?",
    "has expired": "make the engine a new one",
    "is of another host": "dial the name that stands in it",
}
_PLAIN = (
    "WRONG_VERSION_NUMBER",
    "HTTP_REQUEST",
    "RECORD_LAYER_FAILURE",
    "PACKET_LENGTH_TOO_LONG",
    "UNEXPECTED_MESSAGE",
)


def trainer_context(ca: Name | None = None, cert: Name | None = None, key: Name | None = None) -> ssl.SSLContext:
    """For who dials.

    Args:
        ca: certificates that are trusted, in a PEM file; None: those of the system. cert, key: this side's own.

    Raises:
        ConfigurationError: a file cannot be used.
    """
    with _usable("ca", ca):
        context = ssl.create_default_context(cafile=ca)
    return _with_own(context, cert, key, "put &key=FILE behind the address, or give key=")


def engine_context(cert: Name, key: Name | None = None, client_ca: Name | None = None) -> ssl.SSLContext:
    """For who listens.

    Args:
        client_ca: whose certificates trainers must show; None: none is asked for.

    Raises:
        ConfigurationError: a file cannot be used.
    """
    context = _with_own(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), cert, key, "give it with --tls-key FILE, or tls_key=")
    if client_ca is not None:
        with _usable("client_ca", client_ca):
            context.load_verify_locations(client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    # Nobody takes a session up again. A ticket for it would come while a client sends its first words, and one whose
    # threads send and read at the same time can stand still over it (Python's own sockets have no lock around OpenSSL).
    context.num_tickets = 0
    return context


def _with_own(context: ssl.SSLContext, cert: Name | None, key: Name | None, give_key: str) -> ssl.SSLContext:
    """`context` with this side's own certificate; `give_key`: the cure where its key is missing."""
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if cert is not None:
        if key is None:
            which = cert
        else:
            which = f"{cert}, {key}"
        with _usable("cert", which):
            try:
                context.load_cert_chain(cert, key, password=lambda: b"")  # never asks at the terminal
            except ssl.SSLError as error:
                raise _unfit(cert, key, give_key) or error from error
    return context


def _unfit(cert: Name, key: Name | None, give_key: str) -> ConfigurationError | None:
    """What OpenSSL says as "PEM lib" or "key values mismatch", in words; None: it is something else."""
    held = _begun(cert)
    if key is None:
        keys = held
    else:
        keys = _begun(key)
    if b"CERTIFICATE-----" in held and b"PRIVATE KEY-----" not in keys:
        if key is None:
            field = "cert"
            path = cert
        else:
            field = "key"
            path = key
        return ConfigurationError(f"{path} has no private key in it", field=field, expected="PEM", cure=give_key)
    return None


def _begun(path: Name) -> bytes:
    """The lines of a PEM file that say what begins there."""
    with open(path, "rb") as file:
        return b"\n".join(line.strip() for line in file if line.startswith(b"-----BEGIN "))


@contextmanager
def _usable(field: str, path: Name | None) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        what = f"{path} cannot be used for TLS"
        got = words_of(error)
        if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
            got = "the key is not that of the certificate"
        raise ConfigurationError(what, field=field, expected="PEM", got=got) from error


def why(error: OSError) -> str:
    """What went wrong, for people who know what a certificate is."""
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = _OF_CERTIFICATES.get(error.verify_code, f"is refused: {error.verify_message}")
        return f"the certificate {reason}"
    reason_given = getattr(error, "reason", "") or ""
    reason = str(reason_given)
    if reason in _PLAIN:
        return "the other side speaks no TLS"
    if reason.endswith(("CERTIFICATE_REQUIRED", "PEER_DID_NOT_RETURN_A_CERTIFICATE")):
        return "a certificate of the trainer is asked for, and it has none"
    if "UNKNOWN_CA" in reason or "CERTIFICATE_UNKNOWN" in reason or "BAD_CERTIFICATE" in reason:
        return "the other side does not know who has signed the certificate"
    words = reason or error.strerror
    if not words:
        words = str(error)
    return words.lower().replace("_", " ")


def refused(error: OSError, where: str) -> AccessRefused:
    """The error of who dials `where`."""
    what = why(error)
    cure = next((cure for ending, cure in _CURES.items() if what.endswith(ending)), None)
    if what.startswith("the certificate is signed"):
        cure = "give who has signed it: tls://HOST:PORT?ca=FILE"
    elif what == "the other side speaks no TLS":
        cure = "dial tcp://, or start the engine with --tls-cert"
    elif "of the trainer" in what or "the other side does not know" in what:
        cure = "give one that the engine knows: tls://HOST:PORT?cert=FILE&key=FILE"
    return AccessRefused(f"no TLS with {where}: {what}", got=str(error), cure=cure)
