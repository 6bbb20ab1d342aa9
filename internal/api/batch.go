package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/taskledger/taskledger/api/client"
	"github.com/taskledger/taskledger/internal/durably"
	"github.com/taskledger/taskledger/internal/wire"
	"github.com/taskledger/taskledger/ledger"
)

// batch is a [wire.Tasks] from anybody.
type batch struct {
	Tasks newTasks `json:"tasks"`
}

// newTasks are at most maxBatch tasks. They are decoded one by one: a task takes a hundred times the memory of "{}",
// and a body of 8 kB may have millions of them after decompression.
type newTasks []client.NewTask

// UnmarshalJSON implements [json.Unmarshaler]. It returns the errors of [jsonError], with the index of the task.
func (l *newTasks) UnmarshalJSON(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	begin, err := d.Token()
	if err != nil {
		return jsonError(err)
	}
	if begin != json.Delim('[') {
		return invalid("tasks", "must be an array of 1 to %d tasks", maxBatch)
	}
	var member json.RawMessage // which uses its memory again
	for d.More() {
		i := len(*l)
		if i == maxBatch {
			return invalid("tasks", "must be 1 to %d tasks, got more", maxBatch)
		}
		if err := d.Decode(&member); err != nil {
			return jsonError(err)
		}
		var t client.NewTask
		if err := decodeObject(member, &t); err != nil {
			p, _ := describe(err)
			p.Index = &i
			return p
		}
		*l = append(*l, t)
	}
	return nil
}

// postBatch enqueues tasks, all of them or none.
func (h *Handler) postBatch(w http.ResponseWriter, r *http.Request, c *caller) error {
	if err := errors.Join(parseQuery(r).err, refusePreconditions(r)); err != nil {
		return err
	}
	var batch batch
	if err := h.decode(w, r, maxBatchBytes, false, &batch); err != nil {
		return err
	}
	if len(batch.Tasks) == 0 {
		return invalid("tasks", "must be 1 to %d tasks, got none", maxBatch)
	}
	entries := make([]ledger.Entry, len(batch.Tasks))
	for i, t := range batch.Tasks {
		var err error
		if entries[i], err = c.entry(t, r.Header); err != nil {
			p, _ := describe(err)
			p.Index = &i
			return p
		}
	}
	ctx, cancel := database(r)
	defer cancel()
	var enqueued []ledger.Enqueued
	err := durably.Do(ctx, h.config.DB, func(tx *ledger.Tx) (err error) {
		enqueued, err = ledger.EnqueueMany(ctx, tx, entries)
		err = c.checkRuns(ctx, tx, entries, err)
		if _, ok := errors.AsType[*ledger.OtherArgsError](err); ok { // each answer contains it
			err = nil
		}
		return err
	})
	if err != nil {
		return err
	}
	answer := wire.Tasks[client.Enqueued]{Tasks: make([]client.Enqueued, len(enqueued))}
	for i, e := range enqueued {
		answer.Tasks[i].Enqueued = e
	}
	return h.writeJSON(w, r, http.StatusOK, answer)
}
