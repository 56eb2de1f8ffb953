"""How fast each part is, as a ratio to an honest baseline taken in the same run. `python -m tests.benchmarks`."""
