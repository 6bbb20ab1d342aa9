package ledger

// SetUpcasts replaces the upcasts that reading applies.
func SetUpcasts(u Upcasts) (restore func()) {
	old := ownUpcasts
	ownUpcasts = u
	return func() { ownUpcasts = old }
}
