package outbox

import "embed"

// SetPageSize makes a relay read pages of another size.
func (c *Config) SetPageSize(n int) { c.pageSize = n }

// WaitingSQL is the statement that counts what waits.
var WaitingSQL = waitingSQL

// Statements are all statements of the package.
//
//go:embed sql/*.sql
var Statements embed.FS
