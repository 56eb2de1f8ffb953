"""The HTTP API: thin over the SQL contract, for services that do not share our database.

A request is one transaction that calls one of the four functions; it answers once that is committed, so 202 means
recorded and not yet delivered. It never touches Kafka, apart from provider receipts, which are facts from outside and
have no transaction to share. Reading goes to the journal, which is behind by a moment: a notification that was just
accepted here may be unknown there.

Errors are RFC 9457 problems. What the SQL contract refuses is 422 with the argument's name in `field`.
"""
