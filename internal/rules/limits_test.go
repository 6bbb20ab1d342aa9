package rules_test

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/alarm"
	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/operator"
	"github.com/taskledger/taskledger/internal/projection"
	"github.com/taskledger/taskledger/internal/relays"
	"github.com/taskledger/taskledger/internal/subscribers"
	"github.com/taskledger/taskledger/internal/webhooks"
	"github.com/taskledger/taskledger/ledger"
	face "github.com/taskledger/taskledger/ledger/feed"
	"github.com/taskledger/taskledger/ledger/periodic"
	"github.com/taskledger/taskledger/projector"
	"github.com/taskledger/taskledger/workers"
)

// listReaders are the exported functions that return at most limit entries of a list. They have no database: a limit
// is checked before anything is read.
var listReaders = map[string]func(ctx context.Context, limit int) error{
	"alarm.ReadAlarms": func(ctx context.Context, limit int) error {
		_, _, err := alarm.ReadAlarms(ctx, nil, limit)
		return err
	},
	"feed.Between": func(ctx context.Context, limit int) error {
		_, _, err := feed.Between(ctx, nil, feed.Place{}, feed.Place{}, feed.Choice{Read: 1, Limit: limit})
		return err
	},
	"feed.Places": func(ctx context.Context, limit int) error {
		_, err := new(face.Feed).Places(ctx, 0, limit)
		return err
	},
	"feed.SubscribersFurthest": func(ctx context.Context, limit int) error {
		_, _, err := feed.SubscribersFurthest(ctx, nil, limit)
		return err
	},
	"ledger.NewestOf": func(ctx context.Context, limit int) error {
		_, err := ledger.NewestOf(ctx, nil, ledger.Key{Kind: "k", BizID: "1"}, ledger.NewestOptions{Limit: limit})
		return err
	},
	"ledger.Read": func(ctx context.Context, limit int) error {
		for _, err := range ledger.Read(ctx, nil, 0, limit) {
			return err
		}
		return nil
	},
	"ledger.ReadBack": func(ctx context.Context, limit int) error {
		_, _, err := ledger.ReadBack(ctx, nil, ledger.Range{}, ledger.BackOptions{Limit: limit})
		return err
	},
	"ledger.ReadStartLimits": func(ctx context.Context, limit int) error {
		_, err := ledger.ReadStartLimits(ctx, nil, "", "", limit)
		return err
	},
	"ledger.ReadPartitionWeights": after(ledger.ReadPartitionWeights, ""),
	"ledger.ReadLimits":           after(ledger.ReadLimits, ""),
	"operator.ReadPaused":         after(operator.ReadPaused, ""),
	"outbox.ReadParked":           after(relays.ReadParked, 0),
	"subscribers.ReadParked": func(ctx context.Context, limit int) error {
		_, err := subscribers.ReadParked(ctx, nil, "mails", subscribers.EventName{}, limit)
		return err
	},
	"subscribers.ReadAll":    after(subscribers.ReadAll, ""),
	"periodic.ReadSchedules": after(periodic.ReadSchedules, ""),
	"projector.ListIllegal":  after(projection.ListIllegal, subscribers.EventName{}),
	"projector.ReadCounts":   after(projector.ReadCounts, ""),
	"webhooks.ReadStopped":   after(webhooks.ReadStopped, time.Second),
	"workers.ReadWorkers":    after(workers.ReadWorkers, ""),
}

// after is a reader of the entries after a place.
func after[P, T any](
	read func(context.Context, ledger.DB, P, int) ([]T, error), place P,
) func(context.Context, int) error {
	return func(ctx context.Context, limit int) error {
		_, err := read(ctx, nil, place, limit)
		return err
	}
}

// A limit of a list that is 0 or negative is an error of the caller, and PostgreSQL is not asked. The rule finds each
// exported function with a parameter limit.
func TestLimitsOfLists(t *testing.T) {
	t.Parallel()
	for name, read := range listReaders {
		for _, limit := range []int{0, -1} {
			var invalid *ledger.InvalidError
			if err := read(t.Context(), limit); !errors.As(err, &invalid) || invalid.Field != "limit" {
				t.Errorf("%s(%d): %v, want an invalid limit", name, limit, err)
			}
		}
	}
	pkg := regexp.MustCompile(`^package (?:\S+/)?(\S+)$`)
	takesLimit := regexp.MustCompile(`^func (?:\([^)]*\) )?(\w+)\(.*\blimit int[,)]`)
	var in string
	found := make(map[string]bool)
	for line := range strings.Lines(readFile(t, "internal/rules/"+goldenAPI)) {
		line = strings.TrimSuffix(line, "\n")
		if m := pkg.FindStringSubmatch(line); m != nil {
			in = m[1]
		} else if m := takesLimit.FindStringSubmatch(line); m != nil {
			found[in+"."+m[1]] = true
		}
	}
	for name := range found {
		if listReaders[name] == nil {
			t.Errorf("%s has a limit, and its check is not tested: add it to listReaders", name)
		}
	}
}
