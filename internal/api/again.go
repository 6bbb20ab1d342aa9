package api

import (
	"context"
	_ "embed"
	"errors"

	"github.com/taskledger/taskledger/internal/nextrun"
	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/anothers_runs.sql
var anothersRunsSQL string

// checkRuns returns the problem of a task among the entries, which tx has enqueued with the error err, that the caller
// may not rerun, replace or follow: another caller has enqueued its last run, or the run that waits behind it. The role
// operator may. All callers share the login of the API, so the database does not distinguish them.
func (c *caller) checkRuns(ctx context.Context, tx *ledger.Tx, entries []ledger.Entry, err error) error {
	if _, ok := errors.AsType[*ledger.OtherArgsError](err); c.role.has(Operator) || err != nil && !ok {
		return err
	}
	var kinds, ids pgarray.Builder
	for _, e := range entries {
		if e.Options.IfExists == ledger.IfExistsSame || e.Options.IfExists == ledger.IfExistsIgnore {
			continue
		}
		for _, k := range []ledger.Key{e.Key, nextrun.Of(e.Key)} {
			kinds.Add(string(k.Kind))
			ids.Add(string(k.BizID))
		}
	}
	if kinds.IsEmpty() {
		return err
	}
	var k ledger.Key
	args := []any{kinds.String(), ids.String(), c.name}
	found, readErr := pgquery.Row(ctx, tx, anothersRunsSQL, args, (*string)(&k.Kind), (*string)(&k.BizID))
	switch {
	case readErr != nil:
		return pgerr.Explain("read the authors of runs", readErr)
	case found:
		return problem(codeForbidden, c.name+" has the role "+string(c.role)+", and to rerun, replace or follow task "+
			printable.Short(k.String(), 400)+", which another caller has enqueued, needs "+string(Operator))
	}
	return err
}
