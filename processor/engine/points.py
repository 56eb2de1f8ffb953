"""The moments of the processor at which a test may end the process: before and after each effect.

The service calls `config.at` with the name; in production that does nothing.
"""

POINTS = (
    "processor.decide.before",
    "processor.outputs.after",
    "processor.commit.before",
    "processor.commit.after",
    "processor.state.after",
)
