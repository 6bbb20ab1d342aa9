package projector

import (
	"context"
	"embed"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger/feed"
)

// ApplyPage applies one page, as Run does.
func ApplyPage(ctx context.Context, p *Projector, page feed.Page) error {
	return p.apply(ctx, page, &lingering{due: time.Now().Add(time.Hour)})
}

// PageSize returns the maximum number of events in a page of p.
func PageSize(p *Projector) int { return p.config.PageSize }

// Begin is the statement that begins the transaction of a page.
const Begin = begin

// SQL holds every statement.
//
//go:embed sql/*.sql
var SQL embed.FS

// VerifyIn is Verify in the transaction of a test.
func VerifyIn(ctx context.Context, tx pgx.Tx) (Report, error) { return verify(ctx, tx) }

// SetVerifyBatch sets the number of events that Verify reads at a time.
func SetVerifyBatch(n int) (restore func()) {
	old := verifyBatch
	verifyBatch = n
	return func() { verifyBatch = old }
}

// SetMaxWalk sets the maximum number of events that one call of ReadTasks reads.
func SetMaxWalk(n int) (restore func()) {
	old := maxWalk
	maxWalk = n
	return func() { maxWalk = old }
}

// SetLingerPage makes the list of lingering tasks due at once, and its pages short.
func SetLingerPage(n int) (restore func()) {
	oldAfter, oldPage := lingerAfter, lingerPage
	lingerAfter, lingerPage = 0, n
	return func() { lingerAfter, lingerPage = oldAfter, oldPage }
}
