package projector

import (
	"hash/maphash"
	"strconv"
	"strings"
	"time"

	"github.com/taskledger/taskledger/ledger"
)

// known contains the addresses of task rows that a projector has inserted recently and that nothing has changed since.
// When such a task finishes, its row is updated without a search. It is a hint: tasks_update.sql updates a row only if
// key and version match the task. The zero value is empty. Nil knows no rows and notes none: a rebuild does not begin
// again if a row is missing.
//
// It contains no pointers, which the garbage collector would follow, and stores keys as hashes.
type known struct {
	recent, earlier map[uint64]knownRow
}

// knownRow is a row of an available task, as its first event has made it.
type knownRow struct {
	page      uint32
	item      uint16
	updatedAt int64 // in microseconds since 1970
}

// maxKnown is the maximum number of rows in each of the two maps, of 2.5 MB.
const maxKnown = 1 << 16

var knownSeed = maphash.MakeSeed()

func hashOf(k ledger.Key) uint64 { return maphash.Comparable(knownSeed, k) }

// add adds the row of a task that was inserted at an address, if the task is as an enqueued event makes it.
func (k *known) add(t ledger.Task, address string) {
	if k == nil {
		return
	}
	page, item, _ := strings.Cut(strings.Trim(address, "()"), ",")
	p, err1 := strconv.ParseUint(page, 10, 32)
	i, err2 := strconv.ParseUint(item, 10, 16)
	if t.State != ledger.StateAvailable || t.Version != 1 || err1 != nil || err2 != nil {
		return
	}
	if len(k.recent) >= maxKnown {
		k.earlier, k.recent = k.recent, nil
	}
	if k.recent == nil {
		k.recent = make(map[uint64]knownRow)
	}
	k.recent[hashOf(t.Key)] = knownRow{uint32(p), uint16(i), t.UpdatedAt.UnixMicro()}
}

// take removes the row of a task and returns the address and the task. ok is false if the row is not known.
func (k *known) take(key ledger.Key) (address string, t ledger.Task, ok bool) {
	if k == nil {
		return "", ledger.Task{}, false
	}
	h := hashOf(key)
	row, ok := k.recent[h]
	if !ok {
		if row, ok = k.earlier[h]; !ok {
			return "", ledger.Task{}, false
		}
	}
	k.remove(h)
	b := append(make([]byte, 0, len("(4294967295,65535)")), '(')
	b = append(strconv.AppendUint(b, uint64(row.page), 10), ',')
	b = append(strconv.AppendUint(b, uint64(row.item), 10), ')')
	return string(b), ledger.Task{
		Key: key, State: ledger.StateAvailable, Version: 1, UpdatedAt: time.UnixMicro(row.updatedAt).UTC(),
	}, true
}

// forget removes the row of a task, which is no longer where it was.
func (k *known) forget(key ledger.Key) { k.remove(hashOf(key)) }

func (k *known) remove(hash uint64) {
	delete(k.recent, hash)
	delete(k.earlier, hash)
}

// clear removes all rows.
func (k *known) clear() {
	if k != nil {
		*k = known{}
	}
}
