"""Delivery workers: they hold claims in lanes, make the provider calls and write the outcomes.

Decided, and what would reopen it:

- One thread reads Kafka, one serves the producer, and everything else is one event loop: no locks, and the last-moment
  check and the call stand in one uninterrupted piece. Calls that need a CPU each would reopen it.
- Waiting is data, not tasks: the scheduler holds claims in queues and is asked what may start. A task per claim would
  be thousands of sleepers, and cancelling them in the middle of two locks is where slots leak.
- A worker reads `outcomes` too. Committed offsets lag behind what was answered; with the outcomes read back, a new
  owner calls again only what was in flight when a process died.
- The rebalance is eager with the range assignor, because that is the one that gives equal partition numbers of
  several topics. An assignor that promises it incrementally would reopen it.
- One recipient's server is not "the provider": its Retry-After closes a window of its own.
"""
