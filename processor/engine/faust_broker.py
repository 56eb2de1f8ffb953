"""Kafka's address and credentials for Faust, out of librdkafka's settings."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

import faust
from yarl import URL

from processor.engine.port import EngineError

DEFAULT_PORT = 9092
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_KNOWN = frozenset(
    {
        "security.protocol",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.username",
        "sasl.password",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.endpoint.identification.algorithm",
        "enable.ssl.certificate.verification",
    }
)


def broker_urls(kafka: Mapping[str, str]) -> list[URL]:
    """The bootstrap servers as Faust takes them."""
    servers = [server.strip() for server in kafka["bootstrap.servers"].split(",")]
    urls = []
    for server in servers:
        # A server may name its listener's protocol, which `security.protocol` decides.
        address = server.rpartition("://")[2]
        urls.append(URL(f"kafka://{address}" if ":" in address else f"kafka://{address}:{DEFAULT_PORT}"))
    return urls


def credentials(kafka: Mapping[str, str]) -> Any:
    """How Faust's client proves who it is; None where nobody asks.

    Raises:
        EngineError: a setting of TLS or SASL has no counterpart there.
    """
    unknown = sorted(n for n in kafka if n.startswith(("ssl.", "sasl.", "security.")) and n not in _KNOWN)
    if unknown:
        raise EngineError(
            f"the engine faust cannot follow {', '.join(unknown)} of RUNG_KAFKA_CONFIG; the engine quix can"
        )
    protocol = kafka.get("security.protocol", "plaintext").upper()
    if protocol not in _PROTOCOLS:
        raise EngineError(f"security.protocol {protocol!r} is none of {', '.join(_PROTOCOLS)}")
    context = _context(kafka) if protocol.endswith("SSL") else None
    if protocol.startswith("SASL"):
        mechanism = kafka.get("sasl.mechanism") or kafka.get("sasl.mechanisms", "")
        if mechanism not in _MECHANISMS:
            raise EngineError(f"the engine faust knows the SASL mechanisms {', '.join(_MECHANISMS)}, not {mechanism!r}")
        return faust.SASLCredentials(
            username=kafka.get("sasl.username"),
            password=kafka.get("sasl.password"),
            mechanism=mechanism,
            ssl_context=context,
        )
    return None if context is None else faust.SSLCredentials(context)


def _context(kafka: Mapping[str, str]) -> ssl.SSLContext:
    try:
        return _made(kafka)
    except OSError as error:
        given = ", ".join(f"{name} {value!r}" for name, value in kafka.items() if name.endswith(".location"))
        raise EngineError(f"a certificate or key cannot be loaded ({error}); RUNG_KAFKA_CONFIG has {given}") from error


def _made(kafka: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=kafka.get("ssl.ca.location"), cadata=kafka.get("ssl.ca.pem"))
    # librdkafka's names for these two: whether the certificate is for this host, and whether it is looked at at all.
    context.check_hostname = kafka.get("ssl.endpoint.identification.algorithm", "https") != "none"
    if kafka.get("enable.ssl.certificate.verification", "true").lower() == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate := kafka.get("ssl.certificate.location"):
        context.load_cert_chain(certificate, kafka.get("ssl.key.location"), kafka.get("ssl.key.password"))
    return context
