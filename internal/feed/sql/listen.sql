-- Subscribes this connection to notifications of feed.WakeChannel. Locks nothing.
listen taskledger
