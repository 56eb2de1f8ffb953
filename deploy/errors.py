"""What ends a command with one message for the person and exit code 2, and no traceback."""


class CommandError(Exception):
    """The input, the configuration or the surroundings are not what it needs; the message says what to do."""
