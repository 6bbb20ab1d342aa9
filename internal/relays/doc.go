// Package relays reports the state of the relay and its stream, and administers both: parked events are published again
// or discarded, the stream is rebuilt or off. Package outbox runs the relay.
package relays
