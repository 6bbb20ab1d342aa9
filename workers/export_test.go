package workers

import "context"

// Pass looks at everything once.
func (r *Reconciler) Pass(ctx context.Context) error { return r.pass(ctx) }

// Statements are those of this package, by file name.
var Statements = map[string]string{
	"heads.sql":       headsSQL,
	"lease_renew.sql": leaseRenewSQL,
	"lease_end.sql":   leaseEndSQL,
	"lease_sweep.sql": leaseSweepSQL,
	"dead.sql":        deadSQL,
	"find.sql":        findSQL,
	"find_aside.sql":  findAsideSQL,
	"find_dead.sql":   findDeadSQL,

	"reconcile_mark.sql":   reconcileMarkSQL,
	"reconcile_bounds.sql": reconcileBoundsSQL,
	"reconcile_page.sql":   reconcilePageSQL,
}
