package outbox

// SetPageSize makes a relay read pages of another size.
func (c *Config) SetPageSize(n int) { c.pageSize = n }
