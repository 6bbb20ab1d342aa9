// Package copies prevents the services of a copied database from using the same NATS as the original's services.
//
// A physical copy of a database stores everything that its original stores. Its relay would continue the original's
// stream, and its dispatcher would give out the same tasks. Only the runs of their servers differ:
// server_run(). A service that begins in a new run asks on [stream.Prefix.Copies]. It refuses to work if a service
// of another run answers and holds its lease there. Relays and dispatchers answer each other.
//
// If both begin at the same moment, or the original's services are down, nothing answers.
package copies

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/lease"
	"github.com/taskledger/taskledger/internal/loglimit"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

// Claim is a question of a service, or the answer to one.
type Claim struct {
	Installation string `json:"installation"`
	Run          string `json:"run"`
	Holder       string `json:"holder"`            // of the service's lease
	Word         string `json:"word"`              // of the question
	Answers      string `json:"answers,omitempty"` // the word of the question to which this is the answer
}

// parse returns the claim in a message. It returns false for a message that a consumer delivers to the subject of
// claims. Such a message carries a reply subject, an event's headers, and a task's args as its body.
func parse(m *nats.Msg) (c Claim, ok bool) {
	if m.Reply != "" || len(m.Header) > 0 {
		return c, false
	}
	return c, json.Unmarshal(m.Data, &c) == nil
}

func publish(nc *nats.Conn, c Claim) error {
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return nc.Publish(stream.PrefixOf(nc).Copies(), text)
}

const (
	// answerWait is how long a service waits for answers, once after each start of the server.
	answerWait = 400 * time.Millisecond
	// times is how often it asks during answerWait, because a part of NATS may not know its subscription yet.
	times = 4
)

// Ask asks whether a service of another copy works. It returns that service's lease holder, or "" without an answer. It
// returns an error if NATS is unavailable.
func Ask(ctx context.Context, nc *nats.Conn, mine Claim) (holder string, err error) {
	mine.Word = rand.Text()
	received := make(chan *nats.Msg, 64) // excess ones are dropped: questions are repeated
	subject := stream.PrefixOf(nc).Copies()
	sub, err := nc.ChanSubscribe(subject, received)
	if err != nil {
		return "", fmt.Errorf("subscribe to %s: %w", subject, err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	for range times {
		if err := publish(nc, mine); err != nil {
			return "", err
		}
		wait := time.After(answerWait / times)
		for isWaiting := true; isWaiting; {
			select {
			case m := <-received:
				other, ok := parse(m)
				if ok && other.Answers == mine.Word && other.Installation == mine.Installation &&
					other.Run != mine.Run {
					return other.Holder, nil
				}
			case <-wait:
				isWaiting = false
			case <-ctx.Done():
				return "", context.Cause(ctx)
			}
		}
	}
	if err := nc.FlushTimeout(answerWait); err != nil {
		return "", fmt.Errorf("ask for copies of the database: %w", err)
	}
	return "", nil
}

// Answerer answers questions from services of copies while its own service holds its lease.
type Answerer struct {
	NATS     *nats.Conn
	DB       ledger.DB
	Lease    string        // its name
	Patience time.Duration // for the statement that reads the lease
	Logger   *slog.Logger
	Mine     func() *Claim // in the run in which the service works; nil before it does
}

// Run answers until ctx is done.
func (a Answerer) Run(ctx context.Context) error {
	received := make(chan *nats.Msg, 64) // excess ones are dropped: questions are repeated
	subject := stream.PrefixOf(a.NATS).Copies()
	sub, err := a.NATS.ChanSubscribe(subject, received)
	if err != nil {
		return fmt.Errorf("subscribe to %s: %w", subject, err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	limited := loglimit.New()
	defer limited.Close()
	for {
		select {
		case <-ctx.Done():
			return nil
		case m := <-received:
			if question, ok := parse(m); ok && question.Answers == "" {
				a.answer(ctx, limited, question)
			}
		}
	}
}

// answer answers a question, if the service still holds its lease in its run. The lease may belong to a database that
// was promoted or restarted before the service has read the run.
func (a Answerer) answer(ctx context.Context, limited *loglimit.Logger, question Claim) {
	mine := a.Mine()
	if mine == nil || question.Installation != mine.Installation || question.Run == mine.Run {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, a.Patience)
	defer cancel()
	holds, err := lease.Holds(ctx, a.DB, a.Lease, mine.Holder, mine.Installation, mine.Run)
	if err != nil || !holds {
		return
	}
	answer := *mine
	answer.Word, answer.Answers = question.Word, question.Word
	_ = publish(a.NATS, answer) // the question is repeated
	limited.Warn(a.Logger, "a copy of this database has services on the same NATS; they must refuse to continue",
		"holder", question.Holder)
}
