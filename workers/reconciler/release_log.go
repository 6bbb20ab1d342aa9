package reconciler

import (
	"context"
	"log/slog"
	"maps"
	"slices"

	"github.com/taskledger/taskledger/ledger"
)

// releaseLog counts the events that a reconciler appends, by type and data, so that the log has a line for each cause
// and not for each task: a restore can lose the messages of all of them.
type releaseLog struct {
	first map[releaseCause]ledger.BizID
	tasks map[releaseCause]int
}

// releaseCause is the type of an event and its data.
type releaseCause struct {
	kind ledger.EventType
	data string
}

// add counts an event.
func (l *releaseLog) add(q ledger.AppendRequest) {
	c := releaseCause{q.Type, string(q.Data)}
	if l.first == nil {
		l.first, l.tasks = make(map[releaseCause]ledger.BizID), make(map[releaseCause]int)
	}
	if l.tasks[c]++; l.tasks[c] == 1 {
		l.first[c] = q.Key.BizID
	}
}

// write writes a line for each cause, with the first of its tasks.
func (l *releaseLog) write(ctx context.Context, log *slog.Logger, kind ledger.Kind) {
	causes := slices.SortedFunc(maps.Keys(l.tasks), func(a, b releaseCause) int {
		return l.tasks[b] - l.tasks[a]
	})
	for _, c := range causes {
		tasks, first := l.tasks[c], string(l.first[c])
		if c.kind == ledger.EventBuried {
			log.WarnContext(ctx, "tasks that must not run twice were lost, and are dead", "type", string(c.kind),
				"kind", string(kind), "tasks", tasks, "biz_id", first, "detail", c.data)
			continue
		}
		log.WarnContext(ctx, "messages were lost; their tasks are available again", "type", string(c.kind),
			"kind", string(kind), "tasks", tasks, "biz_id", first, "detail", c.data)
	}
}
