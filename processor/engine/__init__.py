"""The engine: it feeds the events of one partition in order to the domain's one decision, keeps the state of every
recipient, and writes outputs, state change and input offset together.

An engine is a port (`port.Engine`). What all engines share stands beside it: `intake` reads records, `handler` decides,
`interpreter` turns commands into records. Three adapters exist:

- `quix`: Kafka transactions through quixstreams, which implements exactly this protocol on public API, changelog and
  restoration included. One process holds the partitions that it is given; state lies in RocksDB and in a changelog.
- `faust_engine`: for a team that runs Faust. Faust decides who holds which partitions, and keeps the databases
  (`faust_membership`, `faust_stores`); all that touches a record is a thread of our own (`plane`, `partitions`,
  `transaction`), since what Faust has there loses records (the table in `faust_membership`). State and topics are those
  of `quix`.
- `memory`: no Kafka, a clock that only moves when it is told to; for the lab, the simulator and the tests.

One contract suite (`tests/contract/engine`) holds them to the same behaviour. Another adapter has to pass it.

Rejected: a table in PostgreSQL claimed with SKIP LOCKED (the wait of every ladder becomes a row that is polled), and,
as the default, a consume-produce-commit loop of our own (restoration and rebalancing are the hard half, and are what a
stream library is for). A stream library that stops being kept up would reopen it.
"""
