"""The lab: play ladders against a scenario, with a clock of its own and providers that answer by script.

It runs the domain's own `decide` on the memory engine, so what it shows is what production does: no Kafka, no database,
and the same output each time. `simulate(ladders_text, scenario_text)` is the whole of it; `rung simulate` prints it.
"""

from processor.lab.simulation import Simulation, simulate

__all__ = ["Simulation", "simulate"]
