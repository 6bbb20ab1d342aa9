package outbox

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	leases "github.com/taskledger/taskledger/internal/lease"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/stream"
)

var (
	//go:embed sql/server_run.sql
	serverRunSQL string
	//go:embed sql/holds_lease.sql
	holdsLeaseSQL string
)

// A physical copy of a database is equal to its original in everything that the database stores. If both had a relay
// on one NATS, each would refuse the messages of the other one as foreign. So relays that have a lease publish a claim,
// and the one whose claim is younger refuses to continue.
//
// A claim may arrive late, when its database has long started again. So only the answer to a claim of this relay's own
// makes it refuse: the answer repeats a word of that claim.
//
// A copy and its original have different runs of their servers. After each start of the server, the first session
// publishes its claim and waits for others before it touches the stream; the mark then has the run. So does a session
// that finds messages on a stream other than the one in its mark. Workers begin only in a run that a mark has (function
// is_relayed_here), so those of a copy take no messages.
//
// A relay that has refused records that the stream is the other one's. It refuses as long as that stream exists, also
// while the other one has no relay. An operator ends that by rebuilding the stream. A promoted standby records nothing,
// because the primary that it replaces may answer for a moment.

// claim is what a relay publishes on stream.Relays.
type claim struct {
	Installation string `json:"installation"`
	Run          string `json:"run"`
	Since        int64  `json:"since"` // microseconds since 1970: when a relay began to work in this run
	Holder       string `json:"holder"`
	Word         string `json:"word"`              // of this relay in this run
	Answers      string `json:"answers,omitempty"` // the word of the claim to which this one is the answer

	stream string // when the stream was created, if a refusal is to be recorded
}

// lastSince is the Since of a claim that yields to every other one.
const lastSince = math.MaxInt64

// serverRun is where a session opens: a run of a database, and what is known of copies of it.
type serverRun struct {
	installation, run string
	now               int64 // by the database's clock, in microseconds since 1970
	isRebased         bool
	isPromoted        bool // after the newest cursor row

	original       string // the relay of another copy beside which one of this database refused last; "": none
	originalSince  int64
	originalStream string // when the stream of that moment was created
}

func readServerRun(ctx context.Context, db *pgxpool.Pool) (r serverRun, err error) {
	err = db.QueryRow(ctx, serverRunSQL).Scan(&r.installation, &r.run, &r.now, &r.isRebased, &r.isPromoted,
		&r.original, &r.originalSince, &r.originalStream)
	return r, pgerr.Explain("read the installation", err)
}

// parseClaim returns the claim in a message. It returns false for a message that a consumer delivers to the subject of
// claims: that one has a reply subject and the headers of an event, and its body is the args of some task.
func parseClaim(m *nats.Msg) (c claim, ok bool) {
	if m.Reply != "" || len(m.Header) > 0 {
		return c, false
	}
	return c, json.Unmarshal(m.Data, &c) == nil
}

// yieldsTo reports whether a relay with claim c must not work beside one with claim other. Of two copies that claim
// since the same moment, one yields.
func (c claim) yieldsTo(other claim) bool {
	if c.Since != other.Since {
		return other.Since < c.Since
	}
	return other.Run < c.Run
}

// refusal returns the error of the relay with claim c beside an older one.
func (c claim) refusal(older claim) *CopyError {
	return &CopyError{Holder: older.Holder, Since: time.UnixMicro(older.Since), stream: c.stream}
}

// copies observes the relays of other copies of the database, while this relay has the lease.
type copies struct {
	nc     *nats.Conn
	holder string
	mine   atomic.Pointer[claim] // nil until the first session has read the run
	older  chan claim            // has a claim to which mine yields
}

func newCopies(nc *nats.Conn, holder string) *copies {
	return &copies{nc: nc, holder: holder, older: make(chan claim, 1)}
}

// CopyError is the error of a relay beside that of another copy of the database, which has worked for longer.
type CopyError struct {
	Holder string    // of the other relay's lease
	Since  time.Time // the other copy has had a relay since then
	// IsAway: the other relay does not answer now. The stream is still that of the other copy.
	IsAway bool

	stream string // when it was created, if the refusal is to be recorded
}

func (e *CopyError) Error() string {
	works, replace := "works", "end that one's services"
	if e.IsAway {
		works = "does not answer now, but works"
	}
	if e.IsAway || e.stream != "" {
		replace += ", then: taskledger stream rebuild --yes"
	}
	return fmt.Sprintf("this database is a copy of another one, whose relay %s %s on the same NATS since %s: "+
		"if this database replaces it, %s; otherwise connect this one to another NATS account, "+
		"then: taskledger rebase --new-installation --yes",
		e.Holder, works, e.Since.UTC().Format(time.RFC3339), replace)
}

const (
	// answerWait is how long a relay waits for the claims of others, once after each start of the server.
	answerWait = 400 * time.Millisecond
	// copyReportEvery is the least time between two reports of a copy that claims to be the original.
	copyReportEvery = time.Minute
)

// watch publishes this relay's claim, at intervals and as the answer to a younger one, until ctx is done. It returns a
// [*CopyError] if this one is the younger one.
func (c *copies) watch(ctx context.Context, every time.Duration, r *Relay) error {
	received := make(chan *nats.Msg, 64) // excess ones are dropped: claims are repeated
	sub, err := c.nc.ChanSubscribe(stream.Relays, received)
	if err != nil {
		return r.explain(fmt.Errorf("subscribe to %s: %w", stream.Relays, err))
	}
	defer func() { _ = sub.Unsubscribe() }()
	beat := time.NewTicker(every)
	defer beat.Stop()
	var reported time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-beat.C:
			c.claim(ctx, r, "")
		case m := <-received:
			mine := c.mine.Load()
			other, ok := parseClaim(m)
			if !ok || mine == nil || other.Installation != mine.Installation || other.Run == mine.Run ||
				other.Holder == c.holder {
				continue
			}
			isOlder := mine.yieldsTo(other)
			if isOlder && other.Answers == mine.Word {
				select {
				case c.older <- other:
				default:
				}
				return mine.refusal(other)
			}
			if c.claim(ctx, r, other.Word) && !isOlder && time.Since(reported) > copyReportEvery {
				reported = time.Now()
				_ = leases.ReportCopy(ctx, r.config.DB, other.Holder, 2*copyReportEvery) // it is repeated
				r.config.Logger.ErrorContext(ctx, "a relay works on a copy of this database, with the same NATS; "+
					"it must refuse to continue", "holder", other.Holder)
				r.hooks.each(func(h Hook) { h.CopyFound(ctx, other.Holder) })
			}
		}
	}
}

// claim publishes this relay's claim, as the answer to the one with a word, if it still has its lease in the run of the
// claim, and reports whether it has. A relay makes no claim if its database is gone. It makes none either if the
// database was promoted or started again: it can have the lease there before its session has read the run.
func (c *copies) claim(ctx context.Context, r *Relay, word string) (holds bool) {
	mine := c.mine.Load()
	if mine == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, r.config.LeaseTTL)
	defer cancel()
	if _, err := queryRow(ctx, r.config.DB, holdsLeaseSQL, []any{c.holder, mine.Run}, &holds); err != nil || !holds {
		return false
	}
	answer := *mine
	answer.Answers = word
	_ = c.publish(answer) // it is repeated
	return true
}

func (c *copies) publish(mine claim) error {
	text, err := json.Marshal(mine)
	if err != nil {
		return err
	}
	return c.nc.Publish(stream.Relays, text)
}

// confirm makes sure that no relay of another copy works, once after each start of the server and before another stream
// is used, and sets the run in the mark. It reports whether the mark is to be written.
func (s *session) confirm(ctx context.Context, at serverRun, hasMark bool) (isNew bool, err error) {
	c := s.relay.copies
	mine := claim{Installation: at.installation, Run: at.run, Since: at.now, Holder: c.holder, Word: rand.Text()}
	created := createdAt(s.state.info)
	if !at.isPromoted || !hasMark {
		mine.stream = created
	}
	isAnothers := at.original != "" && at.originalStream == created
	// Either the stream was lost and a session that could not write the mark has filled it again, or this database is a
	// copy that has worked on another NATS.
	isUnknown := hasMark && s.mark.Created != created && s.state.info.State.LastSeq > 0
	isNew = s.mark.Server != at.run
	earlier := c.mine.Load()
	isConfirmed := earlier != nil && earlier.Run == at.run // by the session before, which could not write the mark
	switch {
	case !isNew:
		mine.Since = s.mark.ServerSince
	case isConfirmed:
		mine.Since = earlier.Since
	}
	// After a rebase there is no mark, and others may own the stream.
	mustAsk := isNew && !isConfirmed && (hasMark || at.isRebased || s.state.info.State.LastSeq > 0)
	if isAnothers || isUnknown || mustAsk {
		asking := mine
		if isAnothers || isUnknown || !hasMark {
			asking.Since = lastSince
		}
		if err := c.ask(ctx, asking); err != nil {
			return false, err
		}
	}
	if isAnothers {
		return false, c.withdraw(&CopyError{
			Holder: at.original, Since: time.UnixMicro(at.originalSince), IsAway: true,
		})
	}
	c.mine.Store(&mine)
	s.mark.Server, s.mark.ServerSince = at.run, mine.Since
	return isNew && hasMark, nil
}

// ask publishes a claim several times, because this relay may not receive yet. It returns a [*CopyError] if there is an
// older claim.
func (c *copies) ask(ctx context.Context, mine claim) error {
	const times = 4
	select {
	case <-c.older: // of an earlier run
	default:
	}
	c.mine.Store(&mine)
	for range times {
		if err := c.publish(mine); err != nil {
			return c.withdraw(err)
		}
		select {
		case other := <-c.older:
			return c.withdraw(mine.refusal(other))
		case <-time.After(answerWait / times):
		case <-ctx.Done():
			return c.withdraw(context.Cause(ctx))
		}
	}
	return nil
}

// withdraw ends the claim of a run that is not confirmed.
func (c *copies) withdraw(err error) error {
	c.mine.Store(nil)
	return err
}
