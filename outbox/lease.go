package outbox

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	leases "github.com/taskledger/taskledger/internal/lease"
	"github.com/taskledger/taskledger/internal/loop"
)

var errLeaseLost = errors.New("another relay has taken the lease")

// lease is the row that decides which relay works. It avoids double work only: two relays that both hold it
// do no harm, because the cursor accepts the pages of one of them. It is a row, not a session's lock, so it
// works behind a pooler in transaction mode.
type lease struct {
	db     *pgxpool.Pool
	holder string
	ttl    time.Duration

	mu   sync.Mutex
	note *string // guarded by mu; why the holder cannot work, "" if it can; nil before the first session
}

func newLease(db *pgxpool.Pool, name string, ttl time.Duration) *lease {
	return &lease{db: db, holder: name + "/" + strings.ToLower(rand.Text()[:8]), ttl: ttl}
}

// hostAndProcess returns a name of this process for operators.
func hostAndProcess() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s-%d", host, os.Getpid())
}

// setNote sets the note that the next renewal writes. Before the first one, the note of the last holder
// stays.
func (l *lease) setNote(note string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.note = &note
}

func (l *lease) currentNote() *string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.note
}

// take takes or renews the lease and reports whether this relay holds it.
func (l *lease) take(ctx context.Context) (bool, error) {
	return leases.TakeRelay(ctx, l.db, l.holder, l.ttl, l.currentNote())
}

// await waits until this relay holds the lease. It calls standby once if another relay holds it first.
func (l *lease) await(ctx context.Context, standby func()) error {
	for first := true; ; first = false {
		holds, err := l.take(ctx)
		if holds || err != nil {
			return err
		}
		if first {
			standby()
		}
		if err := loop.Sleep(ctx, l.ttl/3); err != nil {
			return err
		}
	}
}

// renew renews the lease until ctx is done. It returns errLeaseLost if another relay has taken it. It ignores
// an outage of the database, which ends the session.
func (l *lease) renew(ctx context.Context) error {
	for {
		if err := loop.Sleep(ctx, l.ttl/3); err != nil {
			return nil
		}
		attempt, cancel := context.WithTimeout(ctx, l.ttl/3)
		holds, err := l.take(attempt)
		cancel()
		if err == nil && !holds {
			return errLeaseLost
		}
	}
}

// yield lets another relay take the lease at once, and writes the reason into it.
func (l *lease) yield(ctx context.Context, why error) error {
	l.setNote(why.Error())
	return leases.YieldRelay(ctx, l.db, l.holder, why.Error(), isRefusal(why))
}

// release deletes the lease.
func (l *lease) release(ctx context.Context) error { return leases.ReleaseRelay(ctx, l.db, l.holder) }
