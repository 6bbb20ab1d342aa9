package projector

import (
	"bufio"
	"cmp"
	"container/heap"
	"context"
	"encoding/gob"
	"errors"
	"io"
	"iter"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

// statsInMemory is the number of kinds and minutes that a verification keeps in memory before it writes them to a file.
var statsInMemory = 50_000

// statsRow is the statistics of one kind and minute.
type statsRow struct {
	Key statsKey
	KindStats
}

// compare orders rows by minute and kind, as stats_list.sql does.
func (r statsRow) compare(o statsRow) int {
	return cmp.Or(cmp.Compare(r.Key.minute, o.Key.minute), cmp.Compare(r.Key.kind, o.Key.kind))
}

// sorted returns the rows of s in their order.
func (s *stats) sorted() []statsRow {
	rows := make([]statsRow, 0, len(s.rows))
	for key, row := range maps.All(s.rows) {
		rows = append(rows, statsRow{key, row.KindStats})
	}
	slices.SortFunc(rows, statsRow.compare)
	return rows
}

// statsRuns sorts statistics that do not fit into memory: sorted runs in a temporary file, which are merged. The zero
// value contains none.
type statsRuns struct {
	file *os.File
	ends []int64
}

// storedStats is a row in the file.
type storedStats struct {
	Kind   string
	Minute int64
	Stats  KindStats
}

// add writes a run.
func (r *statsRuns) add(s *stats) (err error) {
	if r.file == nil {
		if r.file, err = os.CreateTemp("", "taskledger-verify-*"); err != nil {
			return err
		}
		_ = os.Remove(r.file.Name()) // where that is possible, the file goes with the process
	}
	buffer := bufio.NewWriter(r.file)
	encoder := gob.NewEncoder(buffer)
	for _, row := range s.sorted() {
		if err := encoder.Encode(storedStats{string(row.Key.kind), row.Key.minute, row.KindStats}); err != nil {
			return err
		}
	}
	if err := buffer.Flush(); err != nil {
		return err
	}
	end, err := r.file.Seek(0, io.SeekCurrent)
	r.ends = append(r.ends, end)
	return err
}

func (r *statsRuns) close() {
	if r.file != nil {
		_ = r.file.Close()
		_ = os.Remove(r.file.Name())
	}
}

// merged returns the rows of all runs and of s in their order, one for each kind and minute.
func (r *statsRuns) merged(s *stats) iter.Seq2[statsRow, error] {
	return func(yield func(statsRow, error) bool) {
		sources := &statsHeap{}
		open := func(next func() (statsRow, error)) error {
			first, err := next()
			if errors.Is(err, io.EOF) {
				return nil
			}
			heap.Push(sources, &statsSource{first, next})
			return err
		}
		rest := s.sorted()
		err := open(func() (statsRow, error) {
			if len(rest) == 0 {
				return statsRow{}, io.EOF
			}
			row := rest[0]
			rest = rest[1:]
			return row, nil
		})
		begin := int64(0)
		for _, end := range r.ends {
			if err == nil {
				err = open(readRun(io.NewSectionReader(r.file, begin, end-begin)))
			}
			begin = end
		}
		for err == nil && sources.Len() > 0 {
			least := statsRow{Key: (*sources)[0].row.Key}
			for err == nil && sources.Len() > 0 && (*sources)[0].row.Key == least.Key {
				least.Add((*sources)[0].row.KindStats)
				err = sources.advance()
			}
			if err == nil && !yield(least, nil) {
				return
			}
		}
		if err != nil {
			yield(statsRow{}, err)
		}
	}
}

// readRun returns a function that reads the rows of a run.
func readRun(from io.Reader) func() (statsRow, error) {
	decoder := gob.NewDecoder(bufio.NewReader(from))
	return func() (statsRow, error) {
		var stored storedStats
		err := decoder.Decode(&stored)
		return statsRow{statsKey{ledger.Kind(stored.Kind), stored.Minute}, stored.Stats}, err
	}
}

// statsSource is a run with its next row.
type statsSource struct {
	row  statsRow
	next func() (statsRow, error)
}

// statsHeap keeps the source with the least row first.
type statsHeap []*statsSource

func (h statsHeap) Len() int           { return len(h) }
func (h statsHeap) Less(i, j int) bool { return h[i].row.compare(h[j].row) < 0 }
func (h statsHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *statsHeap) Push(x any)        { *h = append(*h, x.(*statsSource)) }

func (h *statsHeap) Pop() any {
	last := len(*h) - 1
	source := (*h)[last]
	*h = (*h)[:last]
	return source
}

// advance reads the next row of the first source.
func (h *statsHeap) advance() error {
	first := (*h)[0]
	row, err := first.next()
	if errors.Is(err, io.EOF) {
		heap.Pop(h)
		return nil
	}
	first.row = row
	heap.Fix(h, 0)
	return err
}

// tableStats returns the statistics in the table in their order, one row for each kind and minute.
func (v *verifier) tableStats(ctx context.Context) iter.Seq2[statsRow, error] {
	return func(yield func(statsRow, error) bool) {
		rows, err := v.tx.Query(ctx, statsListSQL, "", pgquery.Time(time.Time{}), pgquery.Time(endOfTime))
		if err != nil {
			yield(statsRow{}, err)
			return
		}
		defer rows.Close()
		var row statsRow
		isEmpty := true
		for rows.Next() {
			next, err := scanStats(rows)
			if err != nil {
				yield(statsRow{}, err)
				return
			}
			key := statsKey{next.Kind, next.Minute.UnixMicro() / microsPerMinute}
			if !isEmpty && row.Key != key {
				if !yield(row, nil) {
					return
				}
				isEmpty = true
			}
			if isEmpty {
				row, isEmpty = statsRow{Key: key}, false
			}
			row.Add(next)
		}
		if err := rows.Err(); err != nil {
			yield(statsRow{}, err)
			return
		}
		if !isEmpty {
			yield(row, nil)
		}
	}
}

// endOfTime is after all events.
var endOfTime = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
