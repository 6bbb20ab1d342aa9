package health

import (
	"context"
	"fmt"
	"time"

	"github.com/taskledger/taskledger/internal/operator"
	"github.com/taskledger/taskledger/internal/printable"
)

func checkLines(ctx context.Context, c Config, r *Report) error {
	stopped, hasMore, err := operator.ReadStoppedLines(ctx, c.DB)
	if err != nil || len(stopped) == 0 {
		return err
	}
	r.StoppedLines = stopped
	var names []string
	since := time.Time{}
	for _, l := range stopped {
		names = append(names, fmt.Sprintf("%s (%s)", l.OrderKey, l.Key))
		if since.IsZero() || l.Since.Before(since) {
			since = l.Since
		}
	}
	count := printable.Count(int64(len(stopped)))
	if hasMore {
		count = "at least " + count
	}
	r.add(Condition{
		Name: LinesStopped, Since: since,
		Text: fmt.Sprintf("lines stand because of a dead task; lines: %s: %s", count, printable.Names(names, maxNamed)),
	})
	return nil
}
