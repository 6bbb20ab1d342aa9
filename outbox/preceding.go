package outbox

import (
	"context"
	_ "embed"

	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/preceding.sql
var precedingSQL string

// maxPreceded bounds the memory for tasks whose earlier events are published again.
const maxPreceded = 100_000

// preceding returns the messages of events that are owed and precede the given ones in their tasks. So the events of
// each task appear on the stream in their order, although new ones are published before old ones of other tasks.
// It returns [errManyArgs] if there are too many for one page.
func (s recovery) preceding(ctx context.Context, messages []message) ([]message, error) {
	o := s.mark.Owed
	if o == nil || o.Events == o.To {
		return nil, nil
	}
	first := make(map[ledger.Key]ledger.Version)
	for _, m := range messages {
		if v, ok := first[m.event.Key]; !ok || m.event.Version < v {
			first[m.event.Key] = m.event.Version
		}
	}
	if len(s.preceded) > maxPreceded || s.preceded == nil {
		s.preceded = make(map[ledger.Key]ledger.Version)
	}
	var kinds, ids, versions pgarray.Builder
	for key, v := range first {
		if v <= s.preceded[key]+1 {
			continue
		}
		kinds.Add(string(key.Kind))
		ids.Add(string(key.BizID))
		versions.AddInt(int64(v))
	}
	if kinds.IsEmpty() {
		s.notePreceded(messages)
		return nil, nil
	}
	args := []any{kinds.String(), ids.String(), versions.String()}
	args = append(append(args, o.Events.DeliveredArgs()...), o.To.DeliveredArgs()...)
	rows, err := s.relay.config.DB.Query(ctx, precedingSQL, args...)
	if err != nil {
		return nil, pgerr.Explain("find preceding events", err)
	}
	before, err := s.scanAllWork(ctx, rows, len(messages))
	if err != nil {
		return nil, pgerr.Explain("find preceding events", err)
	}
	s.notePreceded(messages)
	return before, nil
}

// notePreceded notes messages whose preceding ones are published before them. If they are not stored, the session ends.
func (s recovery) notePreceded(messages []message) {
	for _, m := range messages {
		s.preceded[m.event.Key] = max(s.preceded[m.event.Key], m.event.Version)
	}
}
