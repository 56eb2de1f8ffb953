"""What an SMTP answer means, by the stage at which it came. Pure.

| stage | 4xx | 5xx |
|---|---|---|
| connect, greeting, MAIL | failed | failed: the server or our sender (552, x.3.4: rejected, too large) |
| log-in | failed | failed: our credentials |
| RCPT | failed | rejected, contact dead; alive where the code speaks of something else (below) |
| DATA | failed | rejected, contact alive: the message; x.1.x speaks of the address: contact dead |

At RCPT these leave the contact alive: x.2.2 and 552 (mailbox full), x.3.x (the system), x.5.x (the protocol), x.6.x
(the form of the message); 530, 535 and x.7.8 are about our credentials: failed. 421 closes the connection: failed.
"""

import re
from enum import Enum

from processor.delivery.channels.port import Failed, Rejected, Result

_ENHANCED = re.compile(r"\s*[245]\.(\d{1,3})\.(\d{1,3})\b")


class Stage(Enum):
    """Where in the dialogue an answer came."""

    CONNECT = "connect"
    LOGIN = "login"
    MAIL = "mail"
    RCPT = "rcpt"
    DATA = "data"


def classify(stage: Stage, code: int, text: str) -> Result:
    """The result of an answer that is not a success; `text` may begin with an enhanced code (RFC 3463)."""
    reason = f"smtp_{code}" if 400 <= code <= 599 else "smtp_protocol"
    if not 500 <= code <= 599:
        return Failed(reason)
    match = _ENHANCED.match(text)
    subject, detail = (int(match[1]), int(match[2])) if match else (None, None)
    if code in (530, 534, 535, 538) or (subject, detail) == (7, 8):
        return Failed("smtp_credentials")
    too_large = (code == 552 and subject != 2) or (subject, detail) == (3, 4)
    match stage:
        case Stage.CONNECT | Stage.LOGIN:
            return Failed(reason)
        case Stage.MAIL:
            return Rejected(reason, contact_alive=True) if too_large else Failed(reason)
        case Stage.RCPT:
            alive = code == 552 or (subject, detail) == (2, 2) or subject in (3, 5, 6)
            return Rejected(reason, contact_alive=alive)
        case Stage.DATA:
            return Rejected(reason, contact_alive=subject != 1)
