package outbox

// Observer hears what a relay does. Any field may be nil. The functions are called from the
// goroutines of the relay, also at once, and must not block.
type Observer struct {
	Published  func(messages int)    // messages that the stream has newly stored
	Duplicates func(messages int)    // messages that it had stored before
	Page       func()                // a page whose cursor row was written
	Parked     func(reason string)   // an event that could not be published
	Lost       func(reason string)   // the stream had lost messages; they are published again
	Purged     func(sequence uint64) // everything below was acknowledged and is removed
	Missed     func(events int)      // the feed's audit found events that it had skipped
	Undone     func(messages int)    // messages of ours on the stream whose commits a crash of the database has undone
	Leading    func(leading bool)    // this relay took the lease, or lost it
	Failed     func(err error)       // something is away; the relay tries again
}

func (o *Observer) published(n int) {
	if o.Published != nil && n > 0 {
		o.Published(n)
	}
}

func (o *Observer) duplicates(n int) {
	if o.Duplicates != nil && n > 0 {
		o.Duplicates(n)
	}
}

func (o *Observer) page() {
	if o.Page != nil {
		o.Page()
	}
}

func (o *Observer) parked(reason string) {
	if o.Parked != nil {
		o.Parked(reason)
	}
}

func (o *Observer) lost(reason string) {
	if o.Lost != nil {
		o.Lost(reason)
	}
}

func (o *Observer) purged(sequence uint64) {
	if o.Purged != nil {
		o.Purged(sequence)
	}
}

func (o *Observer) missed(n int) {
	if o.Missed != nil {
		o.Missed(n)
	}
}

func (o *Observer) undone(n int) {
	if o.Undone != nil && n > 0 {
		o.Undone(n)
	}
}

func (o *Observer) leading(leading bool) {
	if o.Leading != nil {
		o.Leading(leading)
	}
}

func (o *Observer) failed(err error) {
	if o.Failed != nil {
		o.Failed(err)
	}
}
