"""Records with header names that are no text, which the Python client refuses to write."""

from __future__ import annotations

import ctypes
from pathlib import Path

import confluent_kafka
import pytest


def send_with_header_name(bootstrap: str, topic: str, key: bytes, value: bytes, name: bytes) -> None:
    """Write a record with a header whose name is any bytes: the Python client refuses to, the library under it does."""
    found = list((Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs").glob("librdkafka*"))
    if not found:
        pytest.skip("librdkafka is not bundled with the client here")
    library = ctypes.CDLL(str(found[0]))
    for function in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_headers_new"):
        getattr(library, function).restype = ctypes.c_void_p
    error = ctypes.create_string_buffer(512)
    settings = ctypes.c_void_p(library.rd_kafka_conf_new())
    library.rd_kafka_conf_set(settings, b"bootstrap.servers", bootstrap.encode(), error, 512)
    producer = ctypes.c_void_p(library.rd_kafka_new(0, settings, error, 512))
    headers = ctypes.c_void_p(library.rd_kafka_headers_new(1))
    library.rd_kafka_header_add(headers, name, ctypes.c_ssize_t(len(name)), b"v", ctypes.c_ssize_t(1))
    tag = {"end": 0, "topic": 1, "value": 4, "key": 5, "flags": 7, "headers": 10}
    arguments = (
        *(ctypes.c_int(tag["topic"]), topic.encode()),
        *(ctypes.c_int(tag["value"]), value, ctypes.c_size_t(len(value))),
        *(ctypes.c_int(tag["key"]), key, ctypes.c_size_t(len(key))),
        *(ctypes.c_int(tag["flags"]), ctypes.c_int(2)),
        *(ctypes.c_int(tag["headers"]), headers),
    )
    assert library.rd_kafka_producev(producer, *arguments, ctypes.c_int(tag["end"])) == 0
    assert library.rd_kafka_flush(producer, 10_000) == 0
    library.rd_kafka_destroy(producer)
