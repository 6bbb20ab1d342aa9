package console

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/taskledger/taskledger/internal/lists"
	"github.com/taskledger/taskledger/internal/operator"
	"github.com/taskledger/taskledger/ledger"
)

// findFailing returns those of some kinds whose tasks a release would probably let fail again: they fail by the rule of
// Overview, and are neither paused nor just resumed.
func (h *Handler) findFailing(ctx context.Context, at time.Time, of ...ledger.Kind) (map[ledger.Kind]*kindNow, error) {
	kinds := map[ledger.Kind]*kindNow{}
	if len(of) == 0 {
		return kinds, nil
	}
	for _, k := range of {
		kinds[k] = newKindNow(k)
	}
	last := at.UTC().Truncate(time.Minute)
	all, err := h.readHour(ctx, last)
	if err != nil {
		return nil, err
	}
	step := last.Add(time.Minute - sparkStep)
	for _, s := range all {
		k := kinds[s.Kind]
		if k == nil {
			continue
		}
		k.Add(s)
		if !s.Minute.Before(step) {
			k.Last.Add(s)
			k.addMinute(s)
		}
	}
	maps.DeleteFunc(kinds, func(_ ledger.Kind, k *kindNow) bool { return !k.isFailing() || k.Healed() != "" })
	if len(kinds) == 0 {
		return kinds, nil
	}
	if err := h.addResumptions(ctx, at, kinds); err != nil {
		return nil, err
	}
	paused, err := operator.ReadPaused(ctx, h.config.DB, "", lists.All)
	if err != nil {
		return nil, err
	}
	for _, p := range paused {
		delete(kinds, p.Kind)
	}
	maps.DeleteFunc(kinds, func(_ ledger.Kind, k *kindNow) bool { return k.Resumed != nil })
	return kinds, nil
}

// listFailing is findFailing, the kinds with the most failed attempts, in their order.
func (h *Handler) listFailing(ctx context.Context, at time.Time, tasks []ledger.Key) ([]*kindNow, error) {
	of := make([]ledger.Kind, len(tasks))
	for i, t := range tasks {
		of[i] = t.Kind
	}
	kinds, err := h.findFailing(ctx, at, of...)
	all := slices.SortedFunc(maps.Values(kinds), func(a, b *kindNow) int {
		return cmp.Or(cmp.Compare(b.Failed, a.Failed), cmp.Compare(a.Kind, b.Kind))
	})
	return all[:min(len(all), maxTroubles)], err
}

// Now returns how many of the attempts failed that show that the kind fails.
func (k *kindNow) Now() string {
	s, in := k.Last, "the last 5 minutes"
	if s.Failed == 0 {
		s, in = k.KindStats, "the last hour"
	}
	return fmt.Sprintf("%s attempts failed in %s", share(s), in)
}
