package workers

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/ledger"
)

// The times of a division. A worker that is gone is missed after memberAlive, and what it had is
// taken in the next round: within 8 s.
const (
	memberRound = 2 * time.Second
	memberAlive = 6 * time.Second
	// handOverTime is how long shards that are given up wait for their handlers to return. Those
	// that take longer end here all the same: heads keep the new owner off their tasks.
	handOverTime = 5 * time.Second
)

// shardGroups divides all shards in n groups of neighbours, as equal as can be.
func shardGroups(n int) []ledger.ShardSet {
	groups := make([]ledger.ShardSet, n)
	for i := range groups {
		groups[i] = ledger.ShardRange(ledger.Shard(i*ledger.Shards/n), ledger.Shard((i+1)*ledger.Shards/n-1))
	}
	return groups
}

// division is one worker's part in dividing shards among all that live. Each of them does the
// same, round by round: it says that it lives, sees who else does, gives up what is over its fair
// part of a kind's groups, and takes what nobody has until it has its part. The parts add up to all
// groups, so this ends; no more groups move than must.
type division struct {
	pool   *Pool
	kinds  []*kind
	groups []ledger.ShardSet

	shares  map[owned]*share
	renewed time.Time // when others were last told that this worker lives
}

// owned names a group of shards of a kind.
type owned struct {
	kind   ledger.Kind
	shards ledger.ShardSet
}

// share is a group that this worker has.
type share struct {
	stop    context.CancelFunc // receiving
	stopped chan struct{}      // closed when it has stopped
	leaving bool
	left    chan struct{} // closed when it may be forgotten
}

// divide takes part in the division until ctx is done, and then gives up all it has. It returns
// an error only if a consumer is refused.
func (p *Pool) divide(ctx context.Context, kinds []*kind) error {
	d := &division{pool: p, kinds: kinds, groups: shardGroups(p.config.ShardGroups), shares: make(map[owned]*share)}
	serving, ctx := errgroup.WithContext(ctx)
	serving.Go(func() error {
		for ctx.Err() == nil {
			if err := d.round(ctx, serving); err != nil && ctx.Err() == nil {
				p.config.Logger.WarnContext(ctx, "cannot divide shards", "error", err)
				if time.Since(d.renewed) > memberAlive { // others may have them by now
					for _, s := range d.shares {
						s.stop()
					}
					clear(d.shares)
				}
			}
			_ = loop.Sleep(ctx, memberRound)
		}
		return nil
	})
	err := serving.Wait()
	d.end()
	return err
}

// end tells the others that this worker has no shards any more.
func (d *division) end() {
	ctx, cancel := context.WithTimeout(d.pool.lasting, farewellTime)
	defer cancel()
	_, err := d.pool.config.DB.Exec(ctx, shardLeaveSQL, d.pool.id, "", "")
	if err == nil {
		_, err = d.pool.config.DB.Exec(ctx, leaseEndSQL, d.lease())
	}
	if err != nil {
		d.pool.config.Logger.WarnContext(ctx, "cannot give up shards: others will take them", "error", err)
	}
}

func (d *division) lease() string { return "shards/" + d.pool.id }

// round brings what this worker has closer to its part.
func (d *division) round(serve context.Context, serving *errgroup.Group) error {
	ctx, cancel := context.WithTimeout(serve, memberAlive)
	defer cancel()
	now := time.Now()
	if err := d.renew(ctx); err != nil {
		return err
	}
	d.renewed = now
	members, err := d.members(ctx)
	if err != nil {
		return err
	}
	owners, err := d.owners(ctx)
	if err != nil {
		return err
	}
	d.forget(owners)
	var wanted []owned
	for _, k := range d.kinds {
		of, err := d.settle(ctx, k, members[k.name], owners)
		if err != nil {
			return err
		}
		wanted = append(wanted, of...)
	}
	taken, err := d.take(ctx, wanted)
	for _, o := range taken {
		d.start(serve, o, serving)
	}
	return err
}

func (d *division) renew(ctx context.Context) error {
	detail, err := json.Marshal(struct {
		Kinds []string `json:"kinds"`
	}{kindNames(d.kinds)})
	if err != nil {
		return err
	}
	if _, err := d.pool.config.DB.Exec(ctx, leaseRenewSQL, d.lease(), d.pool.id, memberAlive.Milliseconds(), string(detail)); err != nil {
		return fmt.Errorf("renew lease: %w", err)
	}
	return nil
}

// forget drops the shares that have been given up, and those that somebody else has taken.
func (d *division) forget(owners map[owned]string) {
	for o, s := range d.shares {
		select {
		case <-s.left:
			delete(d.shares, o)
			continue
		default:
		}
		if !s.leaving && owners[o] != d.pool.id {
			s.stop()
			delete(d.shares, o)
		}
	}
}

// settle gives up what is over this worker's part of a kind, or returns what it would take.
func (d *division) settle(ctx context.Context, k *kind, members []string, owners map[owned]string) ([]owned, error) {
	part := fairPart(k.name, members, d.pool.id, len(d.groups))
	var mine, unaware, free []owned
	for _, shards := range d.groups {
		o := owned{k.name, shards}
		switch s := d.shares[o]; {
		case s != nil && !s.leaving:
			mine = append(mine, o)
		case s == nil && owners[o] == d.pool.id: // the answer to taking or leaving it was lost
			unaware = append(unaware, o)
		case s == nil && owners[o] == "":
			free = append(free, o)
		}
	}
	for len(mine) > part {
		last := mine[len(mine)-1]
		mine = mine[:len(mine)-1]
		d.give(k, last)
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

// fairPart is how many of n groups are one member's. Who has one more than others is chance, but
// the same to all members, and another for each kind.
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

// start receives the messages of a group.
func (d *division) start(ctx context.Context, o owned, serving *errgroup.Group) {
	k := d.kinds[slices.IndexFunc(d.kinds, func(k *kind) bool { return k.name == o.kind })]
	ctx, stop := context.WithCancel(ctx)
	s := &share{stop: stop, stopped: make(chan struct{}), left: make(chan struct{})}
	d.shares[o] = s
	k.logger.Info("shards taken", "shards", o.shards.String())
	serving.Go(func() error {
		defer close(s.stopped)
		return k.serve(ctx, o.shards)
	})
}

// give gives up a group: what has not begun goes back at once, and who takes it next may begin
// when the handlers have returned, or after handOverTime.
func (d *division) give(k *kind, o owned) {
	s := d.shares[o]
	s.leaving = true
	s.stop()
	k.logger.Info("shards given up", "shards", o.shards.String())
	go func() {
		defer close(s.left)
		<-s.stopped
		for deadline := time.Now().Add(handOverTime); k.hand.holds(o.shards) && time.Now().Before(deadline); {
			time.Sleep(minPause)
		}
		ctx, cancel := d.pool.operation()
		defer cancel()
		if err := d.leave(ctx, o); err != nil { // a later round finds it unaware
			k.logger.Warn("cannot hand over", "shards", o.shards.String(), "error", err)
		}
	}()
}
