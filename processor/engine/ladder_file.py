"""Read the ladder file of a configuration directory; the rules of its content are the domain's."""

from pathlib import Path

from processor.domain.ladders import LadderError, parse_ladders
from schemas.state import Ladder


def load_ladders(path: Path | str) -> dict[str, Ladder]:
    """The ladders of a TOML file by kind.

    Raises:
        LadderError: the file cannot be read, is not UTF-8, or breaks the contract; all faults are listed.
    """
    try:
        # An editor's byte order mark is no fault of the content.
        text = Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise LadderError([f"{path}: this is not UTF-8 at byte {error.start}: save the file as UTF-8"]) from error
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise LadderError([f"{path}: the ladder file cannot be read: {why}"]) from error
    return parse_ladders(text, str(path))
