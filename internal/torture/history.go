package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/taskledger/taskledger/ledger"
)

// entry is one line of a history: an action or an observation of a part.
type entry struct {
	At   time.Time `json:"at"`
	Part string    `json:"part"`
	Op   op        `json:"op"`

	Kind  ledger.Kind  `json:"kind,omitempty"`
	BizID ledger.BizID `json:"biz_id,omitempty"`
	Nonce string       `json:"nonce,omitempty"` // of the task's args
	Err   string       `json:"err,omitempty"`

	// Of opReceived: the message on the stream, and which stream it was, by the time of its creation.
	Event    string         `json:"event,omitempty"` // id
	Version  ledger.Version `json:"version,omitempty"`
	Stream   time.Time      `json:"stream,omitzero"`
	Sequence uint64         `json:"sequence,omitempty"`
}

func (e entry) key() ledger.Key { return ledger.Key{Kind: e.Kind, BizID: e.BizID} }

// op is the kind of an entry.
type op string

const (
	opBegun      op = "begun"       // a producer begins a transaction
	opCommitted  op = "committed"   // its commit was answered
	opRolledBack op = "rolled back" // it rolled back
	opUnknown    op = "unknown"     // its commit was not answered
	opRefused    op = "refused"     // the enqueue returned a typed error, and the transaction was rolled back
	opRun        op = "run"         // the commit of a producer was answered that enqueued a run, or replaced args
	opRan        op = "ran"         // a handler had its effect outside of the database
	opDone       op = "done"        // a worker recorded a success
	opReceived   op = "received"    // the subscriber received a message
	opSkipped    op = "skipped"     // the audit of a relay's feed found events that the feed had skipped
	opEnded      op = "ended"       // a service returned an error
)

// history is a file to which one process appends. It is safe for concurrent use.
type history struct {
	part string
	mu   sync.Mutex
	file *os.File
}

func openHistory(name, part string) (*history, error) {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	return &history{part: part, file: file}, err
}

// add appends an entry by one write, which the end of the process cannot tear. The process ends if it cannot: a
// history with gaps would prove nothing.
func (h *history) add(e entry) {
	e.At, e.Part = time.Now(), h.part
	line, err := json.Marshal(e)
	if err == nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		_, err = h.file.Write(append(line, '\n'))
	}
	if err != nil {
		panic(fmt.Sprintf("history: %v", err))
	}
}

// readHistories returns the entries of all files in a directory, by time.
func readHistories(dir string) ([]entry, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil {
		return nil, err
	}
	var all []entry
	for _, name := range names {
		if all, err = appendHistory(all, name); err != nil {
			return nil, fmt.Errorf("history %s: %w", name, err)
		}
	}
	slices.SortStableFunc(all, func(a, b entry) int { return a.At.Compare(b.At) })
	return all, nil
}

func appendHistory(all []entry, name string) ([]entry, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // it is only read
	for decoder := json.NewDecoder(bufio.NewReader(file)); ; {
		var e entry
		if err := decoder.Decode(&e); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
}
