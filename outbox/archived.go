package outbox

import (
	"context"
	"fmt"

	"github.com/taskledger/taskledger/internal/feed"
)

// ArchivedError is the error of a rebuild or a verification of tables without the archived events.
type ArchivedError struct {
	Subscriber string
	Events     int64
}

func (e *ArchivedError) Error() string {
	return fmt.Sprintf("subscriber %s: %d events of its tables are archived: set Subscription.Archive in its program",
		e.Subscriber, e.Events)
}

// checkArchive returns an [*ArchivedError] if events are in archives and s has none. It logs the events in no file.
func (s *Subscription) checkArchive(ctx context.Context) error {
	inFiles, inNone, err := feed.Archived(ctx, s.DB, s.Kinds)
	switch {
	case err != nil:
		return err
	case inFiles.Events > 0 && s.Archive == nil:
		return &ArchivedError{Subscriber: s.Name, Events: inFiles.Events}
	}
	if inNone.Events > 0 {
		s.Logger.WarnContext(ctx, "events were archived to no file; the tables are derived without them",
			"subscriber", s.Name, "events", inNone.Events, "first", inNone.First, "last", inNone.Last)
	}
	return nil
}

// noteArchived logs which events a new subscriber cannot read.
func (s *Subscription) noteArchived(ctx context.Context) error {
	inFiles, inNone, err := feed.Archived(ctx, s.DB, s.Kinds)
	if err != nil {
		return err
	}
	if inNone.Events > 0 {
		s.Logger.WarnContext(ctx, "events were archived to no file; the subscriber begins without them",
			"subscriber", s.Name, "events", inNone.Events, "first", inNone.First, "last", inNone.Last)
	}
	if inFiles.Events > 0 && s.Archive == nil {
		s.Logger.WarnContext(ctx, "events are archived; the subscriber begins without them, as it has no Archive",
			"subscriber", s.Name, "events", inFiles.Events, "first", inFiles.First, "last", inFiles.Last)
	}
	return nil
}
