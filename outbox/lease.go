package outbox

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/pgerr"
)

var (
	//go:embed sql/lease_take.sql
	leaseTakeSQL string
	//go:embed sql/lease_yield.sql
	leaseYieldSQL string
	//go:embed sql/lease_release.sql
	leaseReleaseSQL string
)

var errLeaseLost = errors.New("another relay has taken the lease")

// lease is the row that says which relay works. It saves double work and nothing else: two
// relays that both believe to hold it do no harm, since the cursor lets one of them go on.
// A row, not a session's lock, so that a pooler in transaction mode is fine.
type lease struct {
	db     *pgxpool.Pool
	holder string
	ttl    time.Duration

	mu   sync.Mutex
	note *string // for the status: what keeps the holder from working, "" for nothing; nil: not known yet
}

func newLease(db *pgxpool.Pool, name string, ttl time.Duration) *lease {
	return &lease{db: db, holder: name + "/" + strings.ToLower(rand.Text()[:8]), ttl: ttl}
}

// hostAndProcess names this process for people.
func hostAndProcess() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s-%d", host, os.Getpid())
}

// remark sets what the next renewal tells the status. Until the first, what the relay before
// said still counts.
func (l *lease) remark(note string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.note = &note
}

func (l *lease) remarked() *string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.note
}

// take takes or renews the lease and reports whether it is ours.
func (l *lease) take(ctx context.Context) (bool, error) {
	var ours bool
	err := l.db.QueryRow(ctx, leaseTakeSQL, l.holder, l.ttl.Milliseconds(), l.remarked()).Scan(&ours)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	return ours, pgerr.Explain("take the lease", err)
}

// await waits until the lease is ours; standby is called once if it is somebody else's.
func (l *lease) await(ctx context.Context, standby func()) error {
	for first := true; ; first = false {
		ours, err := l.take(ctx)
		if ours || err != nil {
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

// keep renews the lease until ctx is done, and returns errLeaseLost if it is somebody else's.
// A database that is away is for the others to notice.
func (l *lease) keep(ctx context.Context) error {
	for {
		if err := loop.Sleep(ctx, l.ttl/3); err != nil {
			return nil
		}
		attempt, cancel := context.WithTimeout(ctx, l.ttl/3)
		ours, err := l.take(attempt)
		cancel()
		if err == nil && !ours {
			return errLeaseLost
		}
	}
}

// yield lets another relay try at once what this one cannot or must not do, and leaves word why.
func (l *lease) yield(ctx context.Context, why error) error {
	l.remark(why.Error())
	_, err := l.db.Exec(ctx, leaseYieldSQL, l.holder, why.Error(), strconv.FormatBool(refuses(why)))
	return pgerr.Explain("yield the lease", err)
}

// release gives the lease back.
func (l *lease) release(ctx context.Context) error {
	_, err := l.db.Exec(ctx, leaseReleaseSQL, l.holder)
	return pgerr.Explain("release the lease", err)
}
