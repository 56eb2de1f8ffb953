"""The moments of the delivery worker at which a test may end the process: before and after each effect.

The service calls `config.at` with the name; in production that does nothing.
"""

POINTS = (
    "delivery.claim.after",
    "delivery.call.before",
    "delivery.call.after",
    "delivery.outcome.before",
    "delivery.outcome.after",
    "delivery.commit.before",
    "delivery.commit.after",
)
