package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/ledger"
)

const (
	defaultPage = 1000
	maxPage     = 10_000
)

// pageFlags are the options of a list that is in the order of names.
type pageFlags struct {
	limit int
	after string
}

// add adds the options to a command that lists elements of a name such as "schedules".
func (f *pageFlags) add(cmd *cobra.Command, elements string) {
	cmd.Flags().IntVar(&f.limit, "limit", defaultPage, fmt.Sprintf("maximum number of %s, 1 to %d", elements, maxPage))
	cmd.Flags().StringVar(&f.after, "after", "", "`name` at which to continue: \"next\" of the previous call")
}

func (f *pageFlags) validate() error {
	if f.limit < 1 || f.limit > maxPage {
		return usagef("--limit must be between 1 and %d, got %d", maxPage, f.limit)
	}
	return nil
}

// readPage returns a page of a list, and the name at which to continue, or "". read returns at most limit elements
// after a name, in the order of their names.
func readPage[E any, N ~string](
	ctx context.Context, db ledger.DB, f pageFlags,
	read func(ctx context.Context, db ledger.DB, after N, limit int) ([]E, error), name func(E) N,
) (page []E, next N, err error) {
	page, err = read(ctx, db, N(f.after), f.limit+1)
	if err == nil && len(page) > f.limit {
		page = page[:f.limit]
		next = name(page[f.limit-1])
	}
	return append([]E{}, page...), next, err
}

// noteNext writes a note for people that a list continues after a name.
func noteNext[N ~string](a *app, next N) {
	if next != "" && a.config.output != formatJSON {
		fmt.Fprintf(a.stderr, "there are more: continue with --after %s\n", shellWord(string(next)))
	}
}

// noteLimit writes a note for people that a list without a next page may have been cut.
func noteLimit(a *app, listed, limit int) {
	if listed == limit && a.config.output != formatJSON {
		fmt.Fprintf(a.stderr, "there may be more: the list ends at --limit %d\n", limit)
	}
}
