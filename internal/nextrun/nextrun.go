// Package nextrun names the tasks of taskledger itself that stand for a run behind a run that has begun:
// ledger.IfExistsFollow.
//
// Such a task is scheduled after the task whose run it is, with the args of that run. While it waits, an enqueue
// replaces its args. When the task has finished, the scheduler appends the next run to it, and ends this task, in one
// transaction: taskledger_internal.begin_next. So the events contain the waiting run, which survives as they do.
package nextrun

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/taskledger/taskledger/ledger"
)

// Kind is the kind of these tasks.
const Kind ledger.Kind = "taskledger.next"

// maxBizID is the length of the longest biz_id.
const maxBizID = 255

// Of returns the key of the task that stands for the next run of k. The function next_id in SQL returns the same.
func Of(k ledger.Key) ledger.Key {
	id := string(k.Kind) + "/" + string(k.BizID)
	if len(id) > maxBizID {
		sum := sha256.Sum256([]byte(id))
		id = "#" + hex.EncodeToString(sum[:]) // no kind contains #
	}
	return ledger.Key{Kind: Kind, BizID: ledger.BizID(id)}
}
