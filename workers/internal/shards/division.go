// Package shards divides the shards of kinds among the workers that are alive.
package shards

import (
	"context"
	"hash/fnv"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/taskledger/taskledger/internal/lease"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/ledger"
)

const (
	// The loss of a worker is noticed after memberTTL, and its groups are taken in the next round: within 8 s.
	round     = 2 * time.Second
	memberTTL = 6 * time.Second
	// drainTime is how long a group that is given up waits for its handlers to return. Slower handlers still finish
	// here: heads keep the new owner off their tasks.
	drainTime = 5 * time.Second

	pollDrained = 50 * time.Millisecond
)

// Kind is a kind whose shards are divided.
type Kind interface {
	KindName() ledger.Kind
	// Serve works on the tasks in some shards until ctx is done. It returns an error only if retrying is useless.
	Serve(ctx context.Context, shards ledger.ShardSet) error
	// HasShards reports whether a task in these shards is in flight.
	HasShards(shards ledger.ShardSet) bool
}

// Config of a [Division].
type Config struct {
	DB     *pgxpool.Pool
	Worker string // its ID
	Groups int
	Kinds  []Kind
	Logger *slog.Logger
	// Operation returns the context of one operation that continues while the worker is stopping.
	Operation func() (context.Context, context.CancelFunc)
}

// Division is one worker's part in dividing shards among the live workers. Each of them does the same, round by
// round: it renews its lease, reads the members and owners, gives up groups that exceed its fair part, and takes free
// ones up to that. The parts add up to all groups, so this ends, and no more groups move than necessary.
type Division struct {
	// Constant.
	config Config
	names  []string // of the kinds
	groups []ledger.ShardSet

	// Of the goroutine that runs rounds.
	shares    map[group]*share
	renewedAt time.Time // when the lease was last renewed
}

// share is a group that this worker owns. The goroutine that runs rounds uses isLeaving; the other fields are constant.
type share struct {
	stop      context.CancelFunc // stops receiving
	stopped   chan struct{}      // closed when receiving has stopped
	isLeaving bool
	left      chan struct{} // closed when the share can be forgotten
}

// New returns a division.
func New(c Config) *Division {
	d := &Division{config: c, groups: divide(c.Groups), shares: make(map[group]*share)}
	for _, k := range c.Kinds {
		d.names = append(d.names, string(k.KindName()))
	}
	slices.Sort(d.names)
	return d
}

// divide divides all shards into n groups of neighbours that are as equal as possible.
func divide(n int) []ledger.ShardSet {
	groups := make([]ledger.ShardSet, n)
	for i := range groups {
		groups[i] = ledger.ShardRange(ledger.Shard(i*ledger.Shards/n), ledger.Shard((i+1)*ledger.Shards/n-1))
	}
	return groups
}

// Run divides shards until ctx is done, and then gives up all groups. It returns an error only if a kind's Serve does.
func (d *Division) Run(ctx context.Context) error {
	serving, ctx := errgroup.WithContext(ctx)
	serving.Go(func() error {
		for ctx.Err() == nil {
			if err := d.runRound(ctx, serving); err != nil && ctx.Err() == nil {
				d.config.Logger.WarnContext(ctx, "cannot divide shards", "error", err)
				if time.Since(d.renewedAt) > memberTTL { // other workers may have taken its groups
					for _, s := range d.shares {
						s.stop()
					}
					clear(d.shares)
				}
			}
			_ = loop.Sleep(ctx, round)
		}
		return nil
	})
	err := serving.Wait()
	d.end()
	return err
}

// end gives up all groups and the lease.
func (d *Division) end() {
	ctx, cancel := d.config.Operation()
	defer cancel()
	ctx, stop := context.WithTimeout(ctx, drainTime)
	defer stop()
	err := d.leaveAll(ctx)
	if err == nil {
		err = lease.Release(ctx, d.config.DB, lease.Member(d.config.Worker))
	}
	if err != nil {
		d.config.Logger.WarnContext(ctx, "cannot give up shards; other workers take them when the lease expires",
			"expires_in", memberTTL, "error", err)
	}
}

// runRound renews the lease and brings the groups of this worker closer to its part.
func (d *Division) runRound(serve context.Context, serving *errgroup.Group) error {
	ctx, cancel := context.WithTimeout(serve, memberTTL)
	defer cancel()
	now := time.Now()
	detail := struct {
		Kinds []string `json:"kinds"`
	}{d.names}
	err := lease.Renew(ctx, d.config.DB, lease.Member(d.config.Worker), d.config.Worker, memberTTL, detail)
	if err != nil {
		return err
	}
	d.renewedAt = now
	members, err := d.readMembers(ctx)
	if err != nil {
		return err
	}
	owners, err := d.readOwners(ctx)
	if err != nil {
		return err
	}
	d.forget(owners)
	var wanted []group
	for _, k := range d.config.Kinds {
		missing, err := d.balance(ctx, k, members[k.KindName()], owners)
		if err != nil {
			return err
		}
		wanted = append(wanted, missing...)
	}
	taken, err := d.take(ctx, wanted)
	for _, g := range taken {
		d.start(serve, g, serving)
	}
	return err
}

// forget drops shares that were given up, and those that another worker has taken.
func (d *Division) forget(owners map[group]string) {
	for g, s := range d.shares {
		select {
		case <-s.left:
			delete(d.shares, g)
			continue
		default:
		}
		if !s.isLeaving && owners[g] != d.config.Worker {
			s.stop()
			delete(d.shares, g)
		}
	}
}

// balance gives up the groups of a kind that exceed this worker's part, or returns those that it lacks.
func (d *Division) balance(
	ctx context.Context, k Kind, members []string, owners map[group]string,
) ([]group, error) {
	part := fairPart(k.KindName(), members, d.config.Worker, len(d.groups))
	var mine, unaware, free []group
	for _, set := range d.groups {
		g := group{k.KindName(), set}
		switch s := d.shares[g]; {
		case s != nil && !s.isLeaving:
			mine = append(mine, g)
		case s == nil && owners[g] == d.config.Worker: // the answer to take or leave was lost
			unaware = append(unaware, g)
		case s == nil && owners[g] == "":
			free = append(free, g)
		}
	}
	for len(mine) > part {
		last := mine[len(mine)-1]
		mine = mine[:len(mine)-1]
		d.giveUp(k, last)
	}
	for len(mine)+len(unaware) > part {
		if err := d.leave(ctx, unaware[0]); err != nil {
			return nil, err
		}
		unaware = unaware[1:]
	}
	wanted := append(unaware, free...)
	return wanted[:min(len(wanted), part-len(mine))], nil
}

// fairPart returns how many of n groups belong to one member. A hash decides which members have one group more; all
// members compute the same, and it differs for each kind.
func fairPart(kind ledger.Kind, members []string, self string, n int) int {
	rank := func(member string) uint64 {
		h := fnv.New64a()
		h.Write([]byte(string(kind) + "/" + member))
		return h.Sum64()
	}
	before := 0
	for _, m := range members {
		if m != self && (rank(m) < rank(self) || rank(m) == rank(self) && m < self) {
			before++
		}
	}
	all := len(members)
	if !slices.Contains(members, self) {
		all++
	}
	part := n / all
	if before < n%all {
		part++
	}
	return part
}

// start serves a group.
func (d *Division) start(ctx context.Context, g group, serving *errgroup.Group) {
	i := slices.IndexFunc(d.config.Kinds, func(k Kind) bool { return k.KindName() == g.kind })
	ctx, stop := context.WithCancel(ctx)
	s := &share{stop: stop, stopped: make(chan struct{}), left: make(chan struct{})}
	d.shares[g] = s
	d.config.Logger.InfoContext(ctx, "shards taken", "kind", string(g.kind), "shards", g.shards.String())
	serving.Go(func() error {
		defer close(s.stopped)
		return d.config.Kinds[i].Serve(ctx, g.shards)
	})
}

// giveUp gives up a group. Tasks that have not begun are given back at once. The next owner may begin when the
// handlers have returned or drainTime has passed.
func (d *Division) giveUp(k Kind, g group) {
	s := d.shares[g]
	s.isLeaving = true
	s.stop()
	d.config.Logger.Info("shards given up", "kind", string(g.kind), "shards", g.shards.String())
	go func() {
		defer close(s.left)
		<-s.stopped
		for deadline := time.Now().Add(drainTime); k.HasShards(g.shards) && time.Now().Before(deadline); {
			time.Sleep(pollDrained)
		}
		ctx, cancel := d.config.Operation()
		defer cancel()
		if err := d.leave(ctx, g); err != nil { // a later round retries
			d.config.Logger.Warn(
				"cannot give up shards", "kind", string(g.kind), "shards", g.shards.String(), "error", err,
			)
		}
	}()
}
