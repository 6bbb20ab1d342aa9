package shards

import (
	"context"
	_ "embed"

	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/members.sql
	membersSQL string
	//go:embed sql/owners.sql
	ownersSQL string
	//go:embed sql/take.sql
	takeSQL string
	//go:embed sql/leave.sql
	leaveSQL string
)

// group is a group of shards of a kind.
type group struct {
	kind   ledger.Kind
	shards ledger.ShardSet
}

// readMembers returns the workers that divide each kind.
func (d *Division) readMembers(ctx context.Context) (map[ledger.Kind][]string, error) {
	rows, err := d.config.DB.Query(ctx, membersSQL, pgarray.Of(d.names...))
	if err != nil {
		return nil, pgerr.Explain("read members", err)
	}
	defer rows.Close()
	members := make(map[ledger.Kind][]string)
	for rows.Next() {
		var kind, worker string
		if err := rows.Scan(&kind, &worker); err != nil {
			return nil, pgerr.Explain("read members", err)
		}
		members[ledger.Kind(kind)] = append(members[ledger.Kind(kind)], worker)
	}
	return members, pgerr.Explain("read members", rows.Err())
}

// readOwners returns the live owners of groups.
func (d *Division) readOwners(ctx context.Context) (map[group]string, error) {
	rows, err := d.config.DB.Query(ctx, ownersSQL, pgarray.Of(d.names...))
	if err != nil {
		return nil, pgerr.Explain("read owners", err)
	}
	defer rows.Close()
	owners := make(map[group]string)
	for rows.Next() {
		var kind, text, worker string
		var alive bool
		if err := rows.Scan(&kind, &text, &worker, &alive); err != nil {
			return nil, pgerr.Explain("read owners", err)
		}
		if set, err := ledger.ParseShardSet(text); err == nil && alive {
			owners[group{ledger.Kind(kind), set}] = worker
		}
	}
	return owners, pgerr.Explain("read owners", rows.Err())
}

// take takes groups, and returns those that this worker owns now.
func (d *Division) take(ctx context.Context, wanted []group) (taken []group, err error) {
	if len(wanted) == 0 {
		return nil, nil
	}
	var kinds, sets pgarray.Builder
	for _, g := range wanted {
		kinds.Add(string(g.kind))
		sets.Add(g.shards.String())
	}
	rows, err := d.config.DB.Query(ctx, takeSQL, d.config.Worker, kinds.String(), sets.String())
	if err != nil {
		return nil, pgerr.Explain("take shards", err)
	}
	defer rows.Close()
	for rows.Next() {
		var kind, text string
		if err := rows.Scan(&kind, &text); err != nil {
			return taken, pgerr.Explain("take shards", err)
		}
		set, err := ledger.ParseShardSet(text)
		if err != nil {
			return taken, pgerr.Explain("take shards", err)
		}
		taken = append(taken, group{ledger.Kind(kind), set})
	}
	return taken, pgerr.Explain("take shards", rows.Err())
}

// leave lets other workers take a group.
func (d *Division) leave(ctx context.Context, g group) error {
	_, err := d.config.DB.Exec(ctx, leaveSQL, d.config.Worker, string(g.kind), g.shards.String())
	return pgerr.Explain("give up shards", err)
}

// leaveAll lets other workers take all groups.
func (d *Division) leaveAll(ctx context.Context) error {
	_, err := d.config.DB.Exec(ctx, leaveSQL, d.config.Worker, "", "")
	return pgerr.Explain("give up shards", err)
}
