// Package feed reads the committed events of the ledger: each once, the events of one task in their order, without
// waiting for any open transaction.
//
//	f, err := feed.Open(ctx, pool, "my-reader", nil)
//	for {
//		page, err := f.Next(ctx)
//		err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
//			// … process the page's events, in tx …
//			return page.Advance(ctx, tx, nil)
//		})
//	}
//
// Advance stores the place of the reader in the transaction that processed the events, so that each event is processed
// exactly once, whatever crashes. The next process of the same name continues there.
//
// Most programs need less than that: a subscriber of package outbox is a function that gets the events, and a
// projection of package projector has tables that can be rebuilt.
//
// # The order of events
//
// Transactions commit out of position order, so positions of successive events may decrease: an event with a lower
// position is delivered when it has been committed. The events of one task come in the order of their versions.
// Package internal/feed contains the algorithm, and the proof that no event is missing.
//
// # Errors
//
// If two processes read under one name, one gets [ErrSuperseded] and has changed nothing. After [ErrCrashed], and after
// an error of the database, open the feed again. If [IsRefusal] is true, an operator must act first.
package feed
