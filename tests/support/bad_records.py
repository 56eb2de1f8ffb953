"""What may be wrong with a record, whatever the topic: one table for every reader."""

from __future__ import annotations

from schemas import records as r
from schemas.codec import AnyRecord
from tests.support.engine import RawRecord, raw

ADA = b"ada"


def bad_records(good: AnyRecord) -> dict[str, tuple[str, RawRecord]]:
    """By what is wrong: the reason that is told, and the record."""
    _, value, headers = raw(good, "bad")
    assert value is not None
    other = b"rung.due" if isinstance(good, r.Delivery) else b"rung.delivery"
    without_type = {name: text for name, text in headers.items() if name != "ce_type"}
    return {
        "no JSON": ("not_json", (ADA, b"{not json", headers)),
        "an empty value": ("not_json", (ADA, b"", headers)),
        "no UTF-8": ("not_utf8", (ADA, b'{"recipient":"\xff\xfe"}', headers)),
        "a lone surrogate": ("not_json", (ADA, b'{"recipient":"\\ud800"}', headers)),
        "too deep": ("not_json", (ADA, b'{"later":' + b"[" * 100_000, headers)),
        "1 MB of nothing": ("not_json", (ADA, b"x" * 1_048_000, headers)),
        "a field of another type": ("bad_field", (ADA, b'{"recipient":5}', headers)),
        "another shape": ("bad_field", (ADA, b"[1]", headers)),
        "a null value": ("null_value", (ADA, None, headers)),
        "no key": ("null_key", (None, value, headers)),
        "an empty key": ("null_key", (b"", value, headers)),
        "a key that is no UTF-8": ("key_not_utf8", (b"\xff\x00", value, headers)),
        "another's key": ("key_mismatch", (b"bob", value, headers)),
        "an unknown type": ("unknown_type", (ADA, value, {**headers, "ce_type": b"rung.tomorrow"})),
        "a type of another topic": ("unknown_type", (ADA, value, {**headers, "ce_type": other})),
        "no headers": ("missing_header", (ADA, value, {})),
        "no type": ("missing_header", (ADA, value, without_type)),
        "a header that is no UTF-8": ("bad_header", (ADA, value, {**headers, "ce_source": b"\xff"})),
        "a time that is none": ("bad_header", (ADA, value, {**headers, "ce_time": b"yesterday"})),
        "all null": ("null_key", (None, None, {})),
    }
