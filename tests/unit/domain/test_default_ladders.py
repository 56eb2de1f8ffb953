"""The ladders that ship with the default configuration."""

from pathlib import Path

import pytest

from processor.domain.ladders import LadderError
from processor.engine.ladder_file import load_ladders
from schemas.state import Ladder, LadderStep, RetryPolicy

FILE = Path(__file__).parents[3] / "deploy" / "config" / "ladders.toml"


def test_the_shipped_ladders_are_sound_and_use_the_shipped_channels() -> None:
    """The default file has no fault, and names only channels that the default channels file has."""
    ladders = load_ladders(FILE)
    assert len(ladders) >= 4
    assert {step.channel for ladder in ladders.values() for step in ladder.steps} == {
        "push",
        "chat",
        "email",
        "webhook",
    }


def test_the_payment_ladder_is_the_documented_one() -> None:
    """Push at once, chat after ten minutes, e-mail after two hours, until the person acts."""
    kind = "payment_action_required"
    assert load_ladders(FILE)[kind] == Ladder(
        kind=kind,
        steps=(
            LadderStep(channel="push", after_ms=0, template=kind),
            LadderStep(channel="chat", after_ms=600_000, template=kind),
            LadderStep(channel="email", after_ms=7_200_000, template=kind),
        ),
        stop_on="resolution",
        expires_after_ms=86_400_000,
        quiet_hours="shift",
        ordering="first-attempt",
        retry=RetryPolicy(max_attempts=4, base_ms=1_000, cap_ms=30_000),
    )


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    """An absent file, a folder, an impossible name and a file in another encoding are told with their name."""
    latin = tmp_path / "latin.toml"
    latin.write_bytes("# für\n".encode("latin-1"))
    cases = {
        tmp_path / "absent.toml": "the ladder file cannot be read: No such file or directory",
        tmp_path: "the ladder file cannot be read: Is a directory",
        Path("a\0b"): "the ladder file cannot be read: embedded null byte",
        latin: "this is not UTF-8 at byte 3: save the file as UTF-8",
    }
    for path, told in cases.items():
        with pytest.raises(LadderError) as caught:
            load_ladders(path)
        assert caught.value.problems == (f"{path}: {told}",)


def test_a_byte_order_mark_is_no_fault(tmp_path: Path) -> None:
    """A file saved by an editor that marks UTF-8 reads like any other, and its faults carry its name."""
    file = tmp_path / "ladders.toml"
    file.write_bytes(b"\xef\xbb\xbf" + FILE.read_bytes())
    assert load_ladders(str(file)) == load_ladders(FILE)
    file.write_text("[kinds.Pay]\nsteps = []\n")
    with pytest.raises(LadderError) as caught:
        load_ladders(file)
    assert all(line.startswith(f"{file}: kinds.Pay") for line in caught.value.problems)
