"""The domain: one pure function decides what happens to one recipient's notifications.

`decide(state, event, now)` is total. It does no I/O, reads no clock and draws no randomness: time is an argument, ids
and jitter are derived from the notification, the step and the attempt. Nothing here imports Kafka, an engine or the
database, and a lint fence keeps it so.
"""
