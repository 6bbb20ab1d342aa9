package outbox

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/stream"
)

//go:embed sql/holds_lease.sql
var holdsLeaseSQL string

// A physical copy of a database is equal to its original in everything that the database stores, so its relay would
// continue the stream of the original. Copies differ in the runs of their servers. The mark has the run in which a
// relay works. The first session in another run asks on stream.Relays before it touches the stream, and refuses if a
// relay of another run answers, which has its lease there.
//
// If both begin at the same moment, or the original's relay is away, nothing answers. Then the first message of one of
// them is a foreign one for the other.

// claim is a question of a relay, or the answer to one.
type claim struct {
	Installation string `json:"installation"`
	Run          string `json:"run"`
	Holder       string `json:"holder"`
	Word         string `json:"word"`              // of the question
	Answers      string `json:"answers,omitempty"` // the word of the question to which this is the answer
}

// parseClaim returns the claim in a message. It returns false for a message that a consumer delivers to the subject of
// claims: that one has a reply subject and the headers of an event, and its body is the args of some task.
func parseClaim(m *nats.Msg) (c claim, ok bool) {
	if m.Reply != "" || len(m.Header) > 0 {
		return c, false
	}
	return c, json.Unmarshal(m.Data, &c) == nil
}

// copies asks the relays of other copies of the database, and answers them while this relay has the lease.
type copies struct {
	nc      *nats.Conn
	holder  string
	mine    atomic.Pointer[claim] // in the run in which this relay works; nil before it does
	answers chan claim            // to the questions of this relay
}

func newCopies(nc *nats.Conn, holder string) *copies {
	return &copies{nc: nc, holder: holder, answers: make(chan claim, 1)}
}

// CopyError is the error of a relay beside that of another copy of the database, which works on the same NATS.
type CopyError struct {
	Holder string // of the other relay's lease
}

func (e *CopyError) Error() string {
	return fmt.Sprintf("this database is a copy of another one, whose relay %s works on the same NATS: "+
		"if this database replaces it, end that one's services; otherwise connect this one to another NATS account, "+
		"then: taskledger rebase --new-installation --yes", e.Holder)
}

// answerWait is how long a relay waits for answers, once after each start of the server.
const answerWait = 400 * time.Millisecond

// watch receives questions and answers until ctx is done.
func (c *copies) watch(ctx context.Context, r *Relay) error {
	received := make(chan *nats.Msg, 64) // excess ones are dropped: questions are repeated
	sub, err := c.nc.ChanSubscribe(stream.Relays, received)
	if err != nil {
		return r.explain(fmt.Errorf("subscribe to %s: %w", stream.Relays, err))
	}
	defer func() { _ = sub.Unsubscribe() }()
	for {
		select {
		case <-ctx.Done():
			return nil
		case m := <-received:
			other, ok := parseClaim(m)
			switch {
			case !ok || other.Holder == c.holder:
			case other.Answers != "":
				select {
				case c.answers <- other:
				default:
				}
			default:
				c.answer(ctx, r, other)
			}
		}
	}
}

// answer answers the question of a copy's relay, if this one still has its lease in its run. It may have the lease of a
// database that was promoted or has started again before its session has read the run.
func (c *copies) answer(ctx context.Context, r *Relay, question claim) {
	mine := c.mine.Load()
	if mine == nil || question.Installation != mine.Installation || question.Run == mine.Run {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, r.config.LeaseTTL)
	defer cancel()
	var holds bool
	if _, err := queryRow(ctx, r.config.DB, holdsLeaseSQL, []any{c.holder, mine.Run}, &holds); err != nil || !holds {
		return
	}
	answer := *mine
	answer.Answers = question.Word
	_ = c.publish(answer) // the question is repeated
	r.limited.Warn(r.config.Logger, "a relay works on a copy of this database, with the same NATS; it must refuse to "+
		"continue", "holder", question.Holder)
}

func (c *copies) publish(mine claim) error {
	text, err := json.Marshal(mine)
	if err != nil {
		return err
	}
	return c.nc.Publish(stream.Relays, text)
}

// confirm makes sure that no relay of another copy works: once after each start of the server, and before a stream is
// used that has messages and is not the one in the mark.
func (c *copies) confirm(ctx context.Context, s *session, installation, run string) error {
	mine := claim{Installation: installation, Run: run, Holder: c.holder, Word: rand.Text()}
	isUnknown := s.mark.Created != createdAt(s.info) && s.info.State.LastSeq > 0
	isConfirmed := s.mark.Server == run
	if earlier := c.mine.Load(); earlier != nil && earlier.Run == run { // by a session that could not write the mark
		isConfirmed = true
	}
	if isConfirmed && !isUnknown {
		c.mine.Store(&mine)
		return nil
	}
	c.mine.Store(nil)
	if err := c.ask(ctx, mine); err != nil {
		return err
	}
	c.mine.Store(&mine)
	return nil
}

// ask asks several times, because this relay may not receive yet. It returns a [*CopyError] after an answer.
func (c *copies) ask(ctx context.Context, mine claim) error {
	const times = 4
	for range times {
		if err := c.publish(mine); err != nil {
			return err
		}
		wait := time.After(answerWait / times)
		for isWaiting := true; isWaiting; {
			select {
			case other := <-c.answers:
				if other.Answers == mine.Word && other.Installation == mine.Installation && other.Run != mine.Run {
					return &CopyError{Holder: other.Holder}
				}
			case <-wait:
				isWaiting = false
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
	return nil
}
