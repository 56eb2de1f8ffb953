"""librdkafka's settings as Faust's client takes them."""

from __future__ import annotations

import ssl
from pathlib import Path

import certifi
import pytest

from processor.engine.faust_broker import broker_urls, credentials
from processor.engine.port import EngineError

BEGIN, END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----\n"


@pytest.mark.parametrize(
    ("servers", "wanted"),
    [
        ("one:9093", ["kafka://one:9093"]),
        ("one:9093, two:9094", ["kafka://one:9093", "kafka://two:9094"]),
        ("one", ["kafka://one:9092"]),
        ("SASL_SSL://one:9093,two", ["kafka://one:9093", "kafka://two:9092"]),
    ],
)
def test_servers(servers: str, wanted: list[str]) -> None:
    """Each server, with the port that librdkafka would take."""
    assert [str(url) for url in broker_urls({"bootstrap.servers": servers})] == wanted


def test_none_where_nobody_asks() -> None:
    """Plain text needs no credentials."""
    assert credentials({"bootstrap.servers": "one"}) is None
    assert credentials({"security.protocol": "PLAINTEXT"}) is None


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("name", ["sasl.mechanism", "sasl.mechanisms"])
def test_sasl(mechanism: str, name: str) -> None:
    """A user, by either of the setting's names."""
    found = credentials(
        {"security.protocol": "sasl_plaintext", name: mechanism, "sasl.username": "rung", "sasl.password": "secret"}
    )
    assert (found.username, found.password, found.mechanism.value) == ("rung", "secret", mechanism)
    assert found.protocol.value == "SASL_PLAINTEXT"


def test_tls_looks_at_the_server_by_default() -> None:
    """Encrypted, with the certificate checked and its name too, as librdkafka does."""
    found = credentials({"security.protocol": "SSL"})
    assert found.context.verify_mode == ssl.CERT_REQUIRED
    assert found.context.check_hostname


def test_tls_checks_are_turned_off_by_their_own_settings() -> None:
    """The name alone, or all."""
    name = credentials({"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "none"}).context
    assert (name.check_hostname, name.verify_mode) == (False, ssl.CERT_REQUIRED)
    none = credentials({"security.protocol": "SSL", "enable.ssl.certificate.verification": "false"}).context
    assert (none.check_hostname, none.verify_mode) == (False, ssl.CERT_NONE)


def test_sasl_over_tls_with_an_authority_of_its_own(tmp_path: Path) -> None:
    """The one authority of `ssl.ca.location` is trusted, and no other."""
    authority = tmp_path / "ca.pem"
    bundle = Path(certifi.where()).read_text("utf-8")
    authority.write_text(bundle[bundle.index(BEGIN) : bundle.index(END) + len(END)], "utf-8")
    found = credentials(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "rung",
            "sasl.password": "secret",
            "ssl.ca.location": str(authority),
        }
    )
    assert found.protocol.value == "SASL_SSL"
    assert len(found.ssl_context.get_ca_certs()) == 1


@pytest.mark.parametrize("name", ["ssl.ca.location", "ssl.certificate.location"])
def test_a_file_that_is_not_there(name: str, tmp_path: Path) -> None:
    """The message names the setting and the file."""
    with pytest.raises(EngineError, match=f"cannot be loaded .*{name} '.*nothing.pem'"):
        credentials({"security.protocol": "SSL", name: str(tmp_path / "nothing.pem")})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"security.protocol": "TLS"}, "security.protocol 'TLS' is none of PLAINTEXT"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, "not 'GSSAPI'"),
        ({"ssl.keystore.location": "here"}, "cannot follow ssl.keystore.location of RUNG_KAFKA_CONFIG"),
    ],
)
def test_what_faust_cannot_do_is_refused(settings: dict[str, str], message: str) -> None:
    """Going on with less than was asked for would be worse."""
    with pytest.raises(EngineError, match=message):
        credentials(settings)
