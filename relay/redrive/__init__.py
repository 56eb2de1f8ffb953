"""Dead letters go back where they came from, when an operator says so.

A run reads `dead-letters` from its beginning, or from a moment on, up to where it ended when the run began. Each letter
that goes back is written to its topic together with a mark in `dead-letters`, in one Kafka transaction: a record
without a value in the letter's partition, whose header `rung_redriven` is the letter's offset. A later run skips what
is marked, so each letter goes back once, whatever its filters are and wherever a run was killed. All runs share one
transactional id, taken before the first look, so a second run at the same time ends the first.

Rejected: the committed offset of a consumer group as the position. It would pass over what a filter leaves out, and a
crash between the write and the commit would put a record back twice.

Nothing is sent to a person who has acted meanwhile: a request goes back only while a resolution that came since is
remembered, and an undelivered one goes back as a `rung.redrive`, which the domain refuses unless the notification still
stands as dead. Nothing goes round: a record carries how often it was put back, also when it is set aside again.
"""
