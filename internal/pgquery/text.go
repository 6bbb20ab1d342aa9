package pgquery

// Repeated is a text that often repeats, for example from row to row. Scanning the same text again allocates nothing.
// NULL is "".
type Repeated string

// ScanBytes is Scan for pgx.
func (r *Repeated) ScanBytes(text []byte) error {
	if string(text) != string(*r) {
		*r = Repeated(text)
	}
	return nil
}

// Borrowed is a text that is valid until the next row is read: a scan allocates nothing. NULL is nil.
type Borrowed []byte

// ScanBytes is Scan for pgx.
func (b *Borrowed) ScanBytes(text []byte) error {
	*b = text
	return nil
}
