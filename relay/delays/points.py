"""The moments of the delayer at which a test may end the process: before and after each effect.

The service calls `config.at` with the name; in production that does nothing.
"""

POINTS = (
    "delays.forward.before",
    "delays.forward.after",
    "delays.commit.before",
    "delays.commit.after",
)
