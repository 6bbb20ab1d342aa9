package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/ledger"
)

// when is a moment as a flag names it: a time, an age, or the position of an event. It is a flag's value.
type when struct {
	text     string
	at       time.Time
	age      time.Duration
	position ledger.Position
}

func (w *when) String() string { return w.text }
func (w *when) Type() string   { return "TIME|AGE|POSITION" }

// Set implements pflag.Value.
func (w *when) Set(text string) error {
	*w = when{text: text}
	position, err := strconv.ParseInt(text, 10, 64)
	switch { // before an age: 0 is one
	case err == nil && position < 1:
		return fmt.Errorf("must be the position of an event, which is at least 1, got %s", text)
	case err == nil:
		w.position = ledger.Position(position)
		return nil
	}
	if w.age, err = parseDuration(text); err == nil && w.age >= 0 {
		return nil
	}
	if w.at, err = readTime(text); err != nil {
		return fmt.Errorf("must be a time such as 2026-12-24T18:00:00Z or 2026-12-24T18:00:00+01:00, "+
			"an age such as 36h or 3d, or the position of an event, got %q", text)
	}
	return nil
}

func (w *when) isSet() bool { return w.text != "" }

// moment returns the moment after what w names: the zero value if the flag is not set.
func (w *when) moment(ctx context.Context, db ledger.DB) (ledger.Moment, error) {
	switch {
	case !w.isSet():
		return ledger.Moment{}, nil
	case w.position != 0:
		return ledger.MomentOf(ctx, db, w.position)
	}
	return ledger.MomentAt(ctx, db, w.time())
}

// beginning returns the moment at which a range begins. An event that w names is part of the range. The zero value is
// the time before the first event.
func (w *when) beginning(ctx context.Context, db ledger.DB) (ledger.Moment, error) {
	switch {
	case !w.isSet():
		return ledger.Moment{}, nil
	case w.position != 0:
		return ledger.MomentBefore(ctx, db, w.position)
	}
	return ledger.MomentFrom(ctx, db, w.time())
}

// time returns the time that w names.
func (w *when) time() time.Time {
	if w.at.IsZero() {
		return time.Now().Add(-w.age)
	}
	return w.at
}

// isAge reports whether w names a different moment each time.
func (w *when) isAge() bool { return w.isSet() && w.at.IsZero() && w.position == 0 }

// pointInTime is a time, or an age. It is a flag's value; the zero value is no time.
type pointInTime struct {
	text string
	time time.Time
	age  time.Duration
}

func (p *pointInTime) String() string { return p.text }
func (p *pointInTime) Type() string   { return "TIME|AGE" }

// Set implements pflag.Value.
func (p *pointInTime) Set(text string) (err error) {
	*p = pointInTime{text: text}
	if p.age, err = parseDuration(text); err == nil && p.age >= 0 {
		return nil
	}
	p.age = 0
	if p.time, err = readTime(text); err != nil {
		return fmt.Errorf("must be a time such as 2026-12-24T18:00:00Z, or an age such as 90m or 3d, got %q", text)
	}
	return nil
}

// at returns the time: the zero time if the flag is not set.
func (p *pointInTime) at(now time.Time) time.Time {
	if p.text != "" && p.time.IsZero() {
		return now.Add(-p.age)
	}
	return p.time
}

// readTime returns the time of RFC 3339 in text. It also accepts the space that [clock] prints.
func readTime(text string) (time.Time, error) {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		at, err = time.Parse("2006-01-02 15:04:05Z07:00", text)
	}
	return at, err
}

// addUTCFlag adds --utc.
func addUTCFlag(cmd *cobra.Command, utc *bool) {
	cmd.Flags().BoolVar(utc, "utc", false, "show times in UTC (default: local time)")
}

// clock formats a time of an event for people.
func clock(t time.Time, utc bool) string {
	if utc {
		return t.UTC().Format("2006-01-02 15:04:05.000000Z")
	}
	return t.Local().Format("2006-01-02 15:04:05.000000Z07:00")
}
