package outbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/operation"
	"github.com/taskledger/taskledger/internal/relays"
	"github.com/taskledger/taskledger/internal/replay"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

// Headers of the messages of a replay, in addition to package replay's.
const (
	headerReplayCount    = "Taskledger-Replay-Count"    // 1, 2, 3… of the events
	headerReplayPosition = "Taskledger-Replay-Position" // of the event, or of the last one

	defaultReplayRate = 1000
)

func init() { replay.Run = runReplay }

// replayConfig adds methods to the configuration of a replay.
type replayConfig struct{ replay.Config }

// runReplay is [replay.Run].
func runReplay(ctx context.Context, given replay.Config) (replay.Result, error) {
	c := replayConfig{given}
	if err := c.validate(); err != nil {
		return replay.Result{}, err
	}
	r, err := c.begin(ctx)
	if err == nil && r.isEnded { // an earlier call may have been killed before its record ended
		err = operation.End(ctx, c.DB, c.record(), nil)
	}
	if err != nil || r.isEnded {
		return r.done, err
	}
	err = operation.Around(ctx, c.DB, c.record(), func(ctx context.Context) error {
		for e, err := range ledger.Events(ctx, c.DB, r.config.Range) {
			if err == nil {
				err = r.publish(ctx, e)
			}
			if err != nil {
				return err
			}
		}
		return r.end(ctx)
	})
	return r.done, err
}

// validate returns nil, or the fault.
func (c replayConfig) validate() error {
	switch {
	case c.DB == nil:
		return errors.New("DB is required")
	case c.JetStream == nil:
		return errors.New("JetStream is required")
	case c.Range.To.IsZero():
		return &ledger.InvalidError{Field: "to", Rule: "must be set, so that the replay can be continued"}
	case c.Rate < 0:
		return &ledger.InvalidError{Field: "rate", Value: strconv.Itoa(c.Rate), Rule: "must not be negative"}
	}
	if err := c.Range.Validate(); err != nil {
		return err
	}
	return validateReplaySubject(c.Subject)
}

// validateReplaySubject returns an error if messages on a subject could reach workers or servers, or if it is not a
// subject to publish on.
func validateReplaySubject(subject string) error {
	fault := func(rule string) error { return &ledger.InvalidError{Field: "subject", Value: subject, Rule: rule} }
	words := strings.Split(subject, ".")
	for _, word := range words {
		switch {
		case word == "":
			return fault("must be words joined by single dots")
		case strings.ContainsAny(word, "*>"):
			return fault("must not have wildcards")
		case strings.ContainsFunc(word, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }):
			return fault("must not contain spaces or control characters")
		}
	}
	if stream.IsOfEvents(subject) || strings.HasPrefix(words[0], "$") || strings.HasPrefix(words[0], "_") {
		return fault("must not begin with ledger, PREFIX.ledger, $ or _: these are the subjects of workers and of NATS")
	}
	return nil
}

// record returns the record of the act.
func (c replayConfig) record() operation.Operation {
	about := map[string]string{"subject": c.Subject, "from": c.fromText(), "to": c.Range.To.String()}
	return operation.Operation{
		Action: operation.ReplayEvents, Actor: c.Actor, Reason: c.Reason, Same: about, Detail: about,
	}
}

func (c replayConfig) fromText() string {
	if c.Range.From.IsZero() {
		return "the first event"
	}
	return c.Range.From.String()
}

// id identifies a replay: the same events of the same ledger on the same subject.
func (c replayConfig) id(source string) string {
	text := fmt.Sprintf("%q %q %q %q %q %q %q %q", source, c.Subject, c.fromText(), c.Range.To, c.Range.Kinds,
		c.Range.Types, c.Range.Actor, c.Range.Prefix)
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}

// replaying is a replay in progress.
type replaying struct {
	config  replayConfig
	encoder encoder
	done    replay.Result
	last    uint64 // sequence of the newest message on the subject, 0: none
	isEnded bool
	every   time.Duration
	due     time.Time // when the next event may be sent
}

// begin finds out how far the replay has progressed.
func (c replayConfig) begin(ctx context.Context) (*replaying, error) {
	installation, err := relays.Installation(ctx, c.DB)
	if err != nil {
		return nil, err
	}
	if c.Rate == 0 {
		c.Rate = defaultReplayRate
	}
	r := &replaying{config: c, encoder: encoder{db: c.DB, source: stream.Source(installation), archive: c.Archive},
		every: time.Second / time.Duration(c.Rate)}
	r.done.ID = c.id(r.encoder.source)
	name, err := c.JetStream.StreamNameBySubject(ctx, c.Subject)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		rule := "no stream has it: make one, such as: nats stream add REPLAY --subjects " + c.Subject + " --defaults"
		return r, &ledger.InvalidError{Field: "subject", Value: c.Subject, Rule: rule}
	case err != nil:
		return r, fmt.Errorf("find the stream of subject %q: %w", c.Subject, relays.ExplainRequest(c.JetStream, err))
	case name == stream.PrefixOf(c.JetStream.Conn()).Stream():
		rule := "belongs to the stream " + name + ", which has new events: choose another subject"
		return r, &ledger.InvalidError{Field: "subject", Value: c.Subject, Rule: rule}
	}
	of, err := c.JetStream.Stream(ctx, name)
	if err != nil {
		return r, fmt.Errorf("open stream %s: %w", name, relays.ExplainRequest(c.JetStream, err))
	}
	if rule := replayRule(of.CachedInfo().Config); rule != "" {
		rule = "belongs to the stream " + name + ", " + rule
		return r, &ledger.InvalidError{Field: "subject", Value: c.Subject, Rule: rule}
	}
	newest, err := of.GetLastMsgForSubject(ctx, c.Subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return r, nil
	}
	if err != nil {
		return r, fmt.Errorf("read stream %s: %w", name, relays.ExplainRequest(c.JetStream, err))
	}
	return r, r.resume(newest)
}

// replayRule returns the fault of a stream of replays, or "". The newest message on the subject is the place of a
// replay, so the stream must keep it there and acknowledge it.
func replayRule(c jetstream.StreamConfig) string {
	switch {
	case c.Retention != jetstream.LimitsPolicy:
		return "which removes messages that were read: its retention must be limits"
	case c.NoAck:
		return "which acknowledges no message: choose another stream"
	case c.SubjectTransform != nil || c.RePublish != nil:
		return "which stores or publishes messages under other subjects: choose another stream"
	}
	return ""
}

// resume continues after the newest message on the subject.
func (r *replaying) resume(newest *jetstream.RawStreamMsg) error {
	r.last = newest.Sequence
	id, end := newest.Header.Get(replay.Header), newest.Header.Get(replay.HeaderEnd)
	switch {
	case id == "":
		return &replay.SubjectError{Subject: r.config.Subject}
	case id != r.done.ID && end == "":
		return &replay.SubjectError{Subject: r.config.Subject, Replay: id}
	case id != r.done.ID:
		return nil // another replay, which has ended
	}
	number := headerReplayCount
	if end != "" {
		number, r.isEnded = replay.HeaderEnd, true
	}
	count, err := strconv.ParseInt(newest.Header.Get(number), 10, 64)
	position, positionErr := strconv.ParseInt(newest.Header.Get(headerReplayPosition), 10, 64)
	if err != nil || positionErr != nil {
		return &replay.SubjectError{Subject: r.config.Subject}
	}
	r.done.Events, r.done.Earlier, r.done.Position = count, count, ledger.Position(position)
	r.config.Range.StartAfter = max(r.config.Range.StartAfter, r.done.Position)
	return nil
}

// publish publishes an event when the rate allows it.
func (r *replaying) publish(ctx context.Context, e ledger.Event) error {
	b, err := r.encoder.prepare(ctx, []ledger.Event{e})
	if err != nil {
		return err
	}
	if len(b.rejects) > 0 {
		r.done.Invalid = append(r.done.Invalid, e.Position)
		return nil
	}
	m := b.messages[0]
	if err := r.wait(ctx); err != nil {
		return err
	}
	m.msg.Header.Set(headerReplayCount, strconv.FormatInt(r.done.Events+1, 10))
	m.msg.Header.Set(headerReplayPosition, strconv.FormatInt(int64(e.Position), 10))
	if err := r.send(ctx, m.msg); err != nil {
		return fmt.Errorf("replay the event at position %d: %w", e.Position, err)
	}
	r.done.Events, r.done.Position = r.done.Events+1, e.Position
	if r.config.Progress != nil {
		r.config.Progress(r.done)
	}
	return nil
}

// wait sleeps until the next event is due.
func (r *replaying) wait(ctx context.Context) error {
	now := time.Now()
	if r.due.Before(now) {
		r.due = now
	}
	pause := r.due.Sub(now)
	r.due = r.due.Add(r.every)
	return loop.Sleep(ctx, pause)
}

// end publishes the message after the last event.
func (r *replaying) end(ctx context.Context) error {
	m := nats.NewMsg(r.config.Subject)
	m.Header.Set(replay.HeaderEnd, strconv.FormatInt(r.done.Events, 10))
	m.Header.Set(headerReplayPosition, strconv.FormatInt(int64(r.done.Position), 10))
	return r.send(ctx, m)
}

// send publishes a message after the newest one of the replay, and waits for its acknowledgement.
func (r *replaying) send(ctx context.Context, m *nats.Msg) error {
	m.Subject = r.config.Subject
	m.Header.Set(replay.Header, r.done.ID)
	// The expected sequence admits each message once. With an id, a stream that was purged would acknowledge the same
	// messages for minutes and not store them.
	fault.Point(fault.ReplaySend)
	ack, err := r.config.JetStream.PublishMsg(ctx, m, jetstream.WithExpectLastSequencePerSubject(r.last))
	var refused *jetstream.APIError
	switch {
	case errors.As(err, &refused) && refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence:
		return &replay.SubjectError{Subject: r.config.Subject, Replay: r.done.ID}
	case err != nil:
		return fmt.Errorf("%w: run the same replay again to continue", relays.ExplainRequest(r.config.JetStream, err))
	}
	fault.Point(fault.ReplayPublished)
	r.last = ack.Sequence
	return nil
}
