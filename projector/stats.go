package projector

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/stats_add.sql
	statsAddSQL string
	//go:embed sql/stats_merge.sql
	statsMergeSQL string
	//go:embed sql/stats_list.sql
	statsListSQL string
)

// KindStats are the statistics of a kind in a minute.
type KindStats struct {
	Kind      ledger.Kind `json:"kind"`
	Minute    time.Time   `json:"minute"` // its beginning, by the database's clock
	Enqueued  int64       `json:"enqueued"`
	Started   int64       `json:"started"` // attempts that have begun; a quick one counts when it ends
	Succeeded int64       `json:"succeeded"`
	Failed    int64       `json:"failed"` // attempts
	Dead      int64       `json:"dead"`
	Cancelled int64       `json:"cancelled"`
	// Waiting is the time from when tasks became available to the beginning of their attempts, and Running is the time
	// of attempts that have ended in this minute.
	Waiting Histogram `json:"waiting"`
	Running Histogram `json:"running"`
}

// Add adds the numbers of o, whose kind and minute may differ.
func (s *KindStats) Add(o KindStats) {
	s.Enqueued += o.Enqueued
	s.Started += o.Started
	s.Succeeded += o.Succeeded
	s.Failed += o.Failed
	s.Dead += o.Dead
	s.Cancelled += o.Cancelled
	s.Waiting, s.Running = s.Waiting.Merge(o.Waiting), s.Running.Merge(o.Running)
}

// numbers returns the numbers of s as a text, "" if they are all 0.
func (s KindStats) numbers() string {
	waiting, running := s.Waiting.trimmed(), s.Running.trimmed()
	if s.Enqueued+s.Started+s.Succeeded+s.Failed+s.Dead+s.Cancelled == 0 && len(waiting)+len(running) == 0 {
		return ""
	}
	return fmt.Sprintf(
		"enqueued %d, started %d, succeeded %d, failed %d, dead %d, cancelled %d, waiting %v, running %v",
		s.Enqueued, s.Started, s.Succeeded, s.Failed, s.Dead, s.Cancelled, waiting, running)
}

// ReadKindStats returns the statistics of a kind ("" for all kinds) for each minute from one time to another, sorted by
// minute and kind. Minutes without events are left out. After two days or more, the archive merges those of archived
// tasks by hour, in its first minute. They lag behind the ledger, see [WaitFor]. The cost does not grow with the
// ledger. It never commits.
func ReadKindStats(ctx context.Context, db ledger.DB, k ledger.Kind, from, to time.Time) ([]KindStats, error) {
	rows, err := db.Query(ctx, statsListSQL, string(k), pgquery.Time(from), pgquery.Time(to))
	if err != nil {
		return nil, pgerr.Explain("read statistics", err)
	}
	all := []KindStats{}
	for rows.Next() {
		s, err := scanStats(rows)
		if err != nil {
			rows.Close()
			return nil, pgerr.Explain("read statistics", err)
		}
		if n := len(all); n > 0 && all[n-1].Kind == s.Kind && all[n-1].Minute.Equal(s.Minute) {
			all[n-1].Add(s)
		} else {
			all = append(all, s)
		}
	}
	return all, pgerr.Explain("read statistics", rows.Err())
}

func scanStats(rows pgx.Rows) (s KindStats, err error) {
	var waiting, running string
	err = rows.Scan((*string)(&s.Kind), pgquery.Micros(&s.Minute), &s.Enqueued, &s.Started, &s.Succeeded, &s.Failed,
		&s.Dead, &s.Cancelled, &waiting, &running)
	if err == nil {
		err = json.Unmarshal([]byte(waiting), &s.Waiting)
	}
	if err == nil {
		err = json.Unmarshal([]byte(running), &s.Running)
	}
	return s, err
}

// statsKey names a kind and a minute, counted since 1970.
type statsKey struct {
	kind   ledger.Kind
	minute int64
}

const microsPerMinute = 60_000_000

// minuteStats is a row of the table.
type minuteStats struct {
	KindStats
	first, last ledger.Position // the lowest and the highest of the tasks enqueued; 0: none
}

// stats collects the statistics of events.
type stats struct {
	rows   map[statsKey]*minuteStats
	last   *minuteStats // most events of a page are of one kind and minute
	lastOf statsKey
	newest int64 // minute
}

func newStats() *stats { return &stats{rows: make(map[statsKey]*minuteStats)} }

func (s *stats) row(e ledger.Event) *minuteStats {
	micros := e.RecordedAt.UnixMicro()
	key := statsKey{e.Kind, micros / microsPerMinute}
	if s.last != nil && s.lastOf == key {
		return s.last
	}
	row := s.rows[key]
	if row == nil {
		row = &minuteStats{}
		s.rows[key] = row
		s.newest = max(s.newest, key.minute)
	}
	s.last, s.lastOf = row, key
	return row
}

// add counts an event that leads from one state of a task to the next. data is the event's data.
func (s *stats) add(before ledger.Task, e ledger.Event, after ledger.Task, data json.RawMessage) {
	row := s.row(e)
	switch e.Type {
	case ledger.EventSucceeded:
		row.Succeeded++
	case ledger.EventFailed:
		row.Failed++
	case ledger.EventBuried:
		row.Dead++
	case ledger.EventCancelled:
		row.Cancelled++
	case ledger.EventEnqueued, ledger.EventScheduled, ledger.EventLinedUp, ledger.EventReleased,
		ledger.EventStarted, ledger.EventProgressed, ledger.EventInterrupted, ledger.EventSnoozed, ledger.EventExpired,
		ledger.EventDiscarded: // counted only if they begin a run
	}
	if e.Version == 1 || e.Run > 0 && before.State.Finished() {
		if row.Enqueued++; row.first == 0 || e.Position < row.first {
			row.first = e.Position
		}
		row.last = max(row.last, e.Position)
		return
	}
	ran, ended := ranFor(e.Type, data)
	if ended {
		row.Running = row.Running.add(ran)
	}
	if after.Attempt > before.Attempt {
		row.Started++
		if before.State == ledger.StateAvailable {
			row.Waiting = row.Waiting.add(e.RecordedAt.Add(-ran).Sub(before.UpdatedAt))
		}
	}
}

var durationMember = []byte(`"duration_ms":`)

// ranFor returns how long the attempt of an event had run when the event was recorded, and whether the event ended it.
// It does not decode the data, which may be large: the duration stands before everything that a handler chooses.
func ranFor(t ledger.EventType, data json.RawMessage) (ran time.Duration, ended bool) {
	switch t {
	case ledger.EventSucceeded, ledger.EventFailed, ledger.EventInterrupted, ledger.EventSnoozed:
		ended = true
	case ledger.EventStarted, ledger.EventProgressed:
	case ledger.EventEnqueued, ledger.EventScheduled, ledger.EventLinedUp, ledger.EventReleased,
		ledger.EventBuried, ledger.EventCancelled, ledger.EventExpired, ledger.EventDiscarded:
		return 0, false
	}
	i := bytes.Index(data, durationMember)
	if i < 0 || !ended && i != len("{") { // else it is a part of the progress
		return 0, false
	}
	text := bytes.TrimLeft(data[i+len(durationMember):], " ")
	end := bytes.IndexFunc(text, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
	ms, err := strconv.ParseFloat(string(text[:max(0, end)]), 64)
	if err != nil || ms > float64(maxRan/time.Millisecond) {
		return 0, false
	}
	return time.Duration(ms * float64(time.Millisecond)), ended
}

// maxRan is the longest time of an attempt that counts.
const maxRan = 10 * 365 * 24 * time.Hour

// addStats appends the statistics of a page, and merges the rows of minutes that have passed.
func (p *tasks) addStats(w *writes, s *stats) {
	if len(s.rows) == 0 {
		return
	}
	w.add("add statistics", p.sql.statsAdd, s.args(), nil)
	if p.schema != inUse {
		return // a build merges all rows at its end
	}
	if since, before, due := p.stats.next(s.newest); due {
		w.add("merge statistics", p.sql.statsMerge, []any{since * microsPerMinute, before * microsPerMinute}, nil)
	}
}

func (s *stats) args() []any {
	var kinds, minutes, enqueued, started, succeeded, failed, dead, cancelled, waiting, running pgarray.Builder
	var first, last pgarray.Builder
	for key, row := range s.rows {
		kinds.Add(string(key.kind))
		minutes.AddInt(key.minute * microsPerMinute)
		enqueued.AddInt(row.Enqueued)
		started.AddInt(row.Started)
		succeeded.AddInt(row.Succeeded)
		failed.AddInt(row.Failed)
		dead.AddInt(row.Dead)
		cancelled.AddInt(row.Cancelled)
		waiting.AddOptional(row.Waiting.literal())
		running.AddOptional(row.Running.literal())
		first.AddOptionalInt(int64(row.first))
		last.AddOptionalInt(int64(row.last))
	}
	return []any{
		kinds.String(), minutes.String(), enqueued.String(), started.String(), succeeded.String(), failed.String(),
		dead.String(), cancelled.String(), waiting.String(), running.String(), first.String(), last.String(),
	}
}

// literal returns h as an array literal, "" if it is empty.
func (h Histogram) literal() string {
	if len(h) == 0 {
		return ""
	}
	return pgarray.OfInts(h...)
}

// statsMerger decides when the rows of passed minutes are merged. A crash leaves rows unmerged, which costs room only.
type statsMerger struct{ mergedTo int64 }

// mergeBack is how many minutes before the newest one are merged first, by a runner that has not run for some time.
const mergeBack = 24 * 60

// next returns the minutes to merge, when events of a new minute have come.
func (m *statsMerger) next(newest int64) (since, before int64, due bool) {
	before = newest - 1                // the events of the minute before may still come
	if m.mergedTo-before > mergeBack { // the clock was ahead
		m.mergedTo = 0
	}
	since = max(m.mergedTo-1, newest-mergeBack)
	if before <= m.mergedTo {
		return 0, 0, false
	}
	m.mergedTo = before
	return since, before, true
}
