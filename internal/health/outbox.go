package health

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/internal/relays"
	"github.com/taskledger/taskledger/internal/stream"
)

func checkOutbox(ctx context.Context, c Config, r *Report) error {
	s, err := relays.ReadStatus(ctx, c.DB, c.JetStream, c.Stream)
	if err != nil {
		return err
	}
	r.Outbox = s
	if s.IsOff {
		if c.isNATSAway() { // workers need it
			r.add(Condition{Name: StreamUnavailable, Text: c.NATSError.Error()})
		}
		return nil
	}
	r.addRelay(s, c.isNATSAway())
	if isExceeded(s.OldestWaiting, c.Thresholds[RelayLag]) {
		r.add(Condition{
			Name: RelayLag, Since: s.OldestAt, Threshold: c.Thresholds[RelayLag],
			Text: lagText("published", s.OldestWaiting, c.Thresholds[RelayLag]),
			Cure: cmp.Or(lagCure(r, RelayRefused, RelayBlocked, StreamWrites), busyCure(s.Relay)),
		})
	}
	if s.Parked > 0 {
		r.add(Condition{
			Name: EventsParked, Since: s.ParkedAt,
			Text: fmt.Sprintf("parked events, which cannot be published: %s; the reason for the last one: %s",
				printable.Counted(s.Parked), s.ParkedReason),
		})
	}
	r.addStream(c, s)
	return nil
}

// addRelay adds the conditions of the relay. isNATSAway: this process cannot connect to NATS either.
func (r *Report) addRelay(s relays.Status, isNATSAway bool) {
	switch l := s.Relay; {
	case l == nil:
		r.add(Condition{Name: RelayStopped, Since: s.OldestAt, Text: "no relay is running"})
	case l.Refused:
		r.add(Condition{Name: RelayRefused, Since: l.NoteSince, Text: "the relay refuses to continue: " + l.Note})
		return // the note contains the cursor's error
	case !l.Alive && l.Note != "":
		r.add(Condition{
			Name: RelayStopped, Since: r.endOf(l),
			Text: fmt.Sprintf("no relay is running; the last one, %s, failed with: %s", l.Holder, l.Note),
		})
	case !l.Alive:
		r.add(Condition{
			Name: RelayStopped, Since: r.endOf(l),
			Text: "no relay is running; the last one was " + l.Holder,
		})
	case l.IsStoreFailure:
		r.add(Condition{
			Name: StreamWrites, Since: l.NoteSince,
			Text: fmt.Sprintf("JetStream does not store the messages of relay %s: %s", l.Holder, l.Note),
		})
	case l.Note != "":
		blocked := Condition{
			Name: RelayBlocked, Since: l.NoteSince,
			Text: fmt.Sprintf("relay %s cannot publish: %s", l.Holder, l.Note),
		}
		if isNATSAway {
			blocked.Cure = fmt.Sprintf("see %s", StreamUnavailable)
		}
		r.add(blocked)
	}
	if s.CursorError != "" {
		r.add(Condition{Name: RelayRefused, Text: "a relay would refuse to continue: " + s.CursorError})
	}
}

// endOf returns when a relay's lease ended. It returns zero if the lease has not ended although the process has.
func (r *Report) endOf(l *relays.LeaseStatus) time.Time {
	if l.AliveUntil.After(r.At) {
		return time.Time{}
	}
	return l.AliveUntil
}

// streamName returns the name of the stream, which the prefix of the connection to NATS begins.
func (c Config) streamName() string { return stream.PrefixOf(c.JetStream.Conn()).Stream() }

// cure returns the cure of a condition in [Definitions], with the name of the stream.
func (c Config) cure(of Name) string {
	d, _ := Define(of)
	return strings.ReplaceAll(d.Cure, stream.Name, c.streamName())
}

func (r *Report) addStream(c Config, s relays.Status) {
	failure := s.StreamError
	if c.isNATSAway() {
		failure = c.NATSError.Error()
	}
	if failure != "" {
		name := "the stream" // while there is no connection, its prefix is unknown
		if c.JetStream != nil {
			name = "stream " + c.streamName()
		}
		unavailable := Condition{
			Name: StreamUnavailable,
			Text: fmt.Sprintf("cannot read the state of %s: %s", name, failure),
		}
		if failure == relays.StreamMissing {
			unavailable.Cure = cmp.Or(lagCure(r, RelayStopped, RelayRefused, RelayBlocked), busyCure(s.Relay))
		}
		r.add(unavailable)
	}
	if s.Stream == nil {
		return
	}
	if len(s.Stream.Drift) > 0 {
		r.add(Condition{
			Name: StreamDrift, Cure: c.cure(StreamDrift),
			Text: fmt.Sprintf("stream %s differs from its configuration: %s", c.streamName(),
				strings.Join(s.Stream.Drift, "; ")),
		})
	}
	for _, name := range s.Stream.Behind {
		r.add(Condition{
			Name: ReplicaBehind, About: name,
			Text: fmt.Sprintf("server %s is missing part of stream %s", printable.Text(name), c.streamName()),
		})
	}
	for _, name := range s.Stream.Late {
		r.add(Condition{
			Name: ConsumerLate, About: name, Cure: c.cure(ConsumerLate),
			Text: fmt.Sprintf("consumer %s has fallen behind the oldest message of stream %s", printable.Text(name),
				c.streamName()),
		})
	}
}

// lagCure returns the cure of a lag behind a running service that has one of these conditions: then a start does not
// help. "": the usual cure.
func lagCure(r *Report, reasons ...Name) string {
	for _, reason := range reasons {
		if slices.ContainsFunc(r.Degraded, func(c Condition) bool { return c.Name == reason }) {
			return fmt.Sprintf("see %s", reason)
		}
	}
	return ""
}

// busyCure returns the cure of a lag behind a relay that works. "": it does not.
func busyCure(l *relays.LeaseStatus) string {
	if l == nil || !l.Alive || l.Note != "" {
		return ""
	}
	return fmt.Sprintf("relay %s is catching up; if the number of events to publish does not fall, "+
		"read its log", printable.Text(l.Holder))
}

// isNATSAway reports whether the caller cannot connect to NATS.
func (c Config) isNATSAway() bool { return c.JetStream == nil && c.NATSError != nil }

// lagText returns the text of a lag.
func lagText(state string, lag, threshold time.Duration) string {
	return fmt.Sprintf("an event has been waiting %s to be %s; the threshold is %s", printable.Age(lag), state,
		printable.Duration(threshold))
}
