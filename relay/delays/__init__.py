"""The delayer: wakes are records that wait in topics, one topic per length of wait, until the moment they carry.

State of one record: appended to `delay.<tier>` → read and held in memory → released at `min(due_at, appended + tier)`
→ written to `due` if its moment has come, else to the largest tier that does not overshoot what remains by more than
half a second. So nothing is ever early, and as every hop computes from the absolute moment, errors do not add up.

Decisions, and what would reopen them:

- One transaction per batch holds the forwarded records, the dead letters and the consumed offsets. Nothing is in flight
  between two calls of `poll`, so a rebalance, whose callbacks run inside `poll`, never meets an open transaction.
- A tier may overshoot by half a second. A wait of ten minutes is some milliseconds short of it when its record is
  written, and each hop is late by some more; without the half second the rest would be waited for in five tiers, and a
  wake-up in seven days took 22 hops in place of 4 (hops that are 60 ms late each).
- A partition's records leave by their release moment and not by their offset. In a whole tier the orders differ by
  that half second and by the skew of the writers' clocks; in the smallest tier, where what remains may be less than a
  second, by a whole one, and waiting at the head would make some records as late. What was forwarded above the
  committed offset is recorded with it, in the offset's metadata (`progress.py`), so a crash neither loses nor repeats
  a record. Reopen if a broker's `offset.metadata.max.bytes` is below its default of 4096.
- Reading ahead is bounded by records, bytes and offsets; at the bound a partition is paused, and resumed at half. It is
  never sought back: each seek fetches thousands of records again. A single head record in memory would do too, but each
  pause and resume also throws away what the client has fetched.
- An instance keeps its `transactional.id` and `group.instance.id` over restarts: it ends its predecessor's open
  transaction at once and gets the same partitions back without a rebalance. The price: when an instance is removed for
  good, its partitions move only after the session timeout.
- A session that loses its clients is followed by a new one with both clients made anew, which reads its positions
  again: whenever it is not known what became of a transaction, and when a call of the client does not return. A first
  fence is no other case, as a broker's restart can make a member fence itself; a second one within a minute proves a
  second process with the same instance id, and ends this one.
- Cancelling is lazy: a wake-up says nothing about what is due, and the processor looks at its state.

What a crash leaves: before the commit, an open transaction that nobody reads and that the successor (or, after ten
seconds, the coordinator) aborts, and the record is forwarded from its old place; after it, a record that is forwarded
and whose offset says so.
"""
