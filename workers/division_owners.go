package workers

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/shard_members.sql
	shardMembersSQL string
	//go:embed sql/shard_owners.sql
	shardOwnersSQL string
	//go:embed sql/shard_take.sql
	shardTakeSQL string
	//go:embed sql/shard_leave.sql
	shardLeaveSQL string
)

// members returns the workers that divide each kind.
func (d *division) members(ctx context.Context) (map[ledger.Kind][]string, error) {
	rows, err := d.pool.config.DB.Query(ctx, shardMembersSQL, d.kindsText())
	if err != nil {
		return nil, fmt.Errorf("read members: %w", err)
	}
	defer rows.Close()
	members := make(map[ledger.Kind][]string)
	for rows.Next() {
		var kind, worker string
		if err := rows.Scan(&kind, &worker); err != nil {
			return nil, fmt.Errorf("read members: %w", err)
		}
		members[ledger.Kind(kind)] = append(members[ledger.Kind(kind)], worker)
	}
	return members, rows.Err()
}

// owners returns who has which groups, of those that live.
func (d *division) owners(ctx context.Context) (map[owned]string, error) {
	rows, err := d.pool.config.DB.Query(ctx, shardOwnersSQL, d.kindsText())
	if err != nil {
		return nil, fmt.Errorf("read owners: %w", err)
	}
	defer rows.Close()
	owners := make(map[owned]string)
	for rows.Next() {
		var kind, text, worker string
		var alive bool
		if err := rows.Scan(&kind, &text, &worker, &alive); err != nil {
			return nil, fmt.Errorf("read owners: %w", err)
		}
		if shards, err := ledger.ParseShardSet(text); err == nil && alive {
			owners[owned{ledger.Kind(kind), shards}] = worker
		}
	}
	return owners, rows.Err()
}

// take takes what is wanted, and returns what this worker has got.
func (d *division) take(ctx context.Context, wanted []owned) (taken []owned, err error) {
	if len(wanted) == 0 {
		return nil, nil
	}
	var kinds, shards pgarray.Builder
	for _, o := range wanted {
		kinds.Add(string(o.kind))
		shards.Add(o.shards.String())
	}
	rows, err := d.pool.config.DB.Query(ctx, shardTakeSQL, d.pool.id, kinds.String(), shards.String())
	if err != nil {
		return nil, fmt.Errorf("take shards: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var kind, text string
		if err := rows.Scan(&kind, &text); err != nil {
			return taken, fmt.Errorf("take shards: %w", err)
		}
		set, err := ledger.ParseShardSet(text)
		if err != nil {
			return taken, fmt.Errorf("take shards: %w", err)
		}
		taken = append(taken, owned{ledger.Kind(kind), set})
	}
	return taken, rows.Err()
}

// leave lets others take a group.
func (d *division) leave(ctx context.Context, o owned) error {
	if _, err := d.pool.config.DB.Exec(ctx, shardLeaveSQL, d.pool.id, string(o.kind), o.shards.String()); err != nil {
		return fmt.Errorf("give up shards: %w", err)
	}
	return nil
}

func (d *division) kindsText() string { return "{" + strings.Join(kindNames(d.kinds), ",") + "}" } // kinds hold nothing to quote
