package health

import (
	"context"
	_ "embed"
	"fmt"
	"strings"
	"time"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/internal/printable"
)

//go:embed sql/open_start.sql
var openStartSQL string

// heldByStarts names the things that a transaction holds, by the locked table.
var heldByStarts = map[string]string{
	"mutex":       "the turns of all lines",
	"permit":      "permits of limits",
	"start_token": "tokens of rates",
	"start_limit": "limits",
}

func checkStarts(ctx context.Context, c Config, r *Report) error {
	threshold := c.Thresholds[StartsHeld]
	if threshold < 0 {
		return nil
	}
	var pid int
	var prepared, user, held string
	var ms int64
	found, err := pgquery.Row(ctx, c.DB, openStartSQL, []any{threshold.Milliseconds()},
		&pid, &prepared, &user, &ms, &held)
	if err != nil {
		return pgerr.Explain("find a transaction that holds starts", err)
	}
	if !found {
		return nil
	}
	age := time.Duration(ms) * time.Millisecond
	held = heldByStarts[held]
	condition := Condition{
		Name: StartsHeld, Since: r.At.Add(-age), Threshold: threshold,
		Text: fmt.Sprintf("a transaction of %s, open for %s, holds %s", user, printable.Age(age), held),
		Cure: fmt.Sprintf("end it in its program, or: select pg_terminate_backend(%d)", pid),
	}
	if pid == 0 {
		condition.Text = fmt.Sprintf("transaction %q of %s, prepared %s ago, holds %s", prepared, user,
			printable.Age(age), held)
		condition.Cure = "commit it, or: " + rollbackPrepared(prepared)
	}
	r.add(condition)
	return nil
}

// rollbackPrepared returns the statement that rolls a prepared transaction back.
func rollbackPrepared(name string) string {
	return "rollback prepared '" + strings.ReplaceAll(name, "'", "''") + "'"
}
