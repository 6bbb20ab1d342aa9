package archive

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/taskledger/taskledger/ledger"
)

// firstBits is the number of bits by which the first versions of keys are counted, in 32 MiB of memory.
const firstBits = 1 << 27

// repeated returns the events that an import leaves out, because their key has version 1 more than once: it was
// enqueued again after its task was archived. Each version 1 begins a history of the key.
//
// A history that ends as a duplicate of an archived task is left out. Of the others, the last one stays, which is also
// what the ledger has in its tables: the archived task, unless it has run again since, or its key was forgotten and
// belongs to another task now. The memory grows with the keys that have several histories, and slowly with the others.
//
// Errors: [ErrNotEmpty] if the last history is of a task that waits or runs: a known key will be discarded, and a
// forgotten one will run, which the files do not show.
func (r *Reader) repeated(ctx context.Context) (map[ledger.Position]struct{}, error) {
	once, twice := make([]uint64, firstBits/64), make([]uint64, firstBits/64)
	bitOf := func(hash [hashBytes]byte) (at uint64, bit uint64) {
		n := binary.BigEndian.Uint64(hash[:]) % firstBits
		return n / 64, 1 << (n % 64)
	}
	err := r.Range(ctx, 0, func(e Record) error {
		if e.Version == 1 {
			at, bit := bitOf(KeyHash(e.Key))
			twice[at] |= once[at] & bit
			once[at] |= bit
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	begun := make(map[[hashBytes]byte]int) // histories
	err = r.Range(ctx, 0, func(e Record) error {
		if e.Version == 1 {
			hash := KeyHash(e.Key)
			if at, bit := bitOf(hash); twice[at]&bit != 0 {
				begun[hash]++
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	histories := make(map[ledger.Key][]history)
	err = r.Range(ctx, 0, func(e Record) error {
		if begun[KeyHash(e.Key)] > 1 {
			all := histories[e.Key]
			if e.Version == 1 || len(all) == 0 {
				all = append(all, history{})
			}
			all[len(all)-1].add(&e)
			histories[e.Key] = all
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	leftOut := make(map[ledger.Position]struct{})
	for k, all := range histories {
		stays := len(all) - 1
		for stays > 0 && all[stays].isDuplicate {
			stays--
		}
		if h := all[stays]; stays > 0 && !h.follows && !h.end.State().Finished() {
			return nil, fmt.Errorf("%w: %s was enqueued again at position %d, after its task was archived, and has "+
				"not ended: run the services of that ledger until it has, then export and import again",
				ErrNotEmpty, k, h.positions[0])
		}
		for i, h := range all {
			for _, p := range h.positions {
				if i != stays {
					leftOut[p] = struct{}{}
				}
			}
		}
	}
	return leftOut, nil
}

// history is the events of a key from a version 1 on.
type history struct {
	positions   []ledger.Position
	version     ledger.Version   // the last one
	end         ledger.EventType // the last one
	isDuplicate bool             // ends as the duplicate of an archived task
	follows     bool             // has been discarded as such a duplicate, and runs again since
}

// add adds the next event. The version of an event that discards a duplicate follows the archived ones.
func (h *history) add(e *Record) {
	h.follows = h.follows || h.isDuplicate
	h.isDuplicate = len(h.positions) > 0 && e.Version > h.version+1 &&
		ledger.EventType(e.Type) == ledger.EventDiscarded &&
		(e.Data == nil || strings.Contains(*e.Data, `"reason":"archived"`)) // nil: erased
	h.positions = append(h.positions, e.Position)
	h.version, h.end = e.Version, ledger.EventType(e.Type)
}
