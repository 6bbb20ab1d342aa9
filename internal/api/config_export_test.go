package api

import "time"

// Constants for tests.
const (
	MaxList = maxList
	MaxWait = maxWait
)

// SetMaxWaiting sets how many requests and streams may wait.
func (c *Config) SetMaxWaiting(n int) { c.bounds.waiting = n }

// SetStreamBytes sets the size of events in memory for streams.
func (c *Config) SetStreamBytes(n int) { c.bounds.streamBytes = n }

// SetReadTimeout sets the time for receiving a body.
func (c *Config) SetReadTimeout(d time.Duration) { c.bounds.read = d }

// SetWriteTimeout sets the time for reading an answer.
func (c *Config) SetWriteTimeout(d time.Duration) { c.bounds.write = d }
