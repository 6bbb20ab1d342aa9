-- Has notifications of feed.WakeChannel sent to this connection. Locks nothing.
listen taskledger
