package workers

import (
	"strconv"
	"strings"

	"github.com/taskledger/taskledger/ledger"
)

// batches lists the last answers with tasks that a worker has read, the newest first: at most one of each process that
// gives it tasks. Its text is [remote.Answer].Batch. The worker returns the text of the last answer that it has read,
// so that each process knows which of its own answers were lost.
type batches []batchOf

// batchOf is an answer of a process.
type batchOf struct {
	process string // gatewayPool.process
	number  int64
}

const (
	// maxBatches bounds the processes of a text. The tasks of others are given again, and the worker has them already.
	maxBatches     = 16
	maxBatchText   = 1000
	maxBatchNumber = 1 << 53
)

// parseBatches returns the list of a text. It returns a [*ledger.InvalidError] if no gateway has returned the text.
func parseBatches(text string) (b batches, err error) {
	if text == "" {
		return nil, nil
	}
	invalid := &ledger.InvalidError{Field: "received", Rule: `must be the batch of an answer, or ""`}
	if len(text) > maxBatchText {
		return nil, invalid
	}
	for one := range strings.SplitSeq(text, "~") {
		process, n, _ := strings.Cut(one, ".")
		number, err := strconv.ParseInt(n, 10, 64)
		if err != nil || process == "" || number < 1 || number > maxBatchNumber {
			return nil, invalid
		}
		b = append(b, batchOf{process, number})
	}
	return b, nil
}

// of returns the last answer of a process that was read; 0: none.
func (b batches) of(process string) int64 {
	for _, one := range b {
		if one.process == process {
			return one.number
		}
	}
	return 0
}

// with returns the text of the list with a newer answer.
func (b batches) with(newest batchOf) string {
	all := batches{newest}
	for _, one := range b {
		if one.process != newest.process && len(all) < maxBatches {
			all = append(all, one)
		}
	}
	return all.String()
}

func (b batches) String() string {
	texts := make([]string, len(b))
	for i, one := range b {
		texts[i] = one.process + "." + strconv.FormatInt(one.number, 10)
	}
	return strings.Join(texts, "~")
}
