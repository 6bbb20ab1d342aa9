package client

import (
	"encoding/json"
	"time"

	"github.com/taskledger/taskledger/ledger"
)

// NewTask is the body of POST /v1/tasks, and an element of POST /v1/tasks:batch. Only Kind and BizID are required.
type NewTask struct {
	Kind ledger.Kind `json:"kind"`
	// BizID may be missing in POST /v1/tasks with an Idempotency-Key, which is then the biz_id.
	BizID ledger.BizID `json:"biz_id,omitempty"`

	Args        json.RawMessage `json:"args,omitempty"`
	Tags        []string        `json:"tags,omitempty"`
	Shard       *ledger.Shard   `json:"shard,omitempty"`
	DataVersion int             `json:"data_version,omitempty"`
	Priority    ledger.Priority `json:"priority,omitempty"` // Default: normal.
	// Partition is the tenant or other group of the task, see [ledger.EnqueueOptions].
	Partition string `json:"partition,omitempty"`
	// Retry is the task's own [ledger.RetryPolicy].
	Retry json.RawMessage `json:"retry,omitempty"`
	RunAt time.Time       `json:"run_at,omitzero"`
	// RunIn is a delay in seconds, in place of RunAt.
	RunIn    float64   `json:"run_in,omitempty"`
	StartBy  time.Time `json:"start_by,omitzero"`
	FinishBy time.Time `json:"finish_by,omitzero"`
	// After contains tasks that must have succeeded before this one becomes available, see [ledger.EnqueueOptions].
	// They must exist or come before this one in its batch, and the caller must be allowed to use their kinds.
	After *ledger.After `json:"after,omitempty"`
	// OrderKey and PassIfDead: see [ledger.EnqueueOptions].
	OrderKey   string `json:"order_key,omitempty"`
	PassIfDead bool   `json:"pass_if_dead,omitempty"`
	// IfExists decides what happens if the task exists: same, ignore, rerun, replace or follow. Default: same. A
	// repeated request with one of the last three begins another run if the first one has finished meanwhile.
	IfExists ledger.IfExists `json:"if_exists,omitempty"`
	// CheckArchive answers an archived task as an existing one, see [ledger.EnqueueOptions].
	CheckArchive bool `json:"check_archive,omitempty"`
	// DeferAtMost and ThrottleFor are delays in seconds, see [ledger.EnqueueOptions].
	DeferAtMost float64 `json:"defer_at_most,omitempty"`
	ThrottleFor float64 `json:"throttle_for,omitempty"`
}

// Enqueued is the answer to a [NewTask].
type Enqueued struct {
	ledger.Enqueued
	// Task is the whole task, if the request asked to wait for its result.
	Task *ledger.Task `json:"task,omitempty"`
}

// List is a page of a list. Next is the query parameter after of the next page; it is empty at the end.
type List[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next,omitempty"`
}

// TaskFilter selects the tasks of [Client.Tasks].
type TaskFilter struct {
	Kind       ledger.Kind  // Default: all kinds of the caller.
	State      ledger.State // Default: all states.
	Tag        string       // one of the tags of the task. Default: all tasks.
	Partition  string       // Default: all partitions.
	OrderKey   string       // the tasks of a line, the last one first. Default: all tasks.
	StartAfter string       // List.Next of the previous page. Default: the last task that was enqueued.
	Limit      int          // maximum number of tasks, at most 1000. Default: 100.
}

// Problem is the answer to a request that failed, in the form of RFC 9457. It is an error.
type Problem struct {
	Type   string `json:"type"`   // a URI with the documentation of Code
	Code   string `json:"code"`   // stable, such as "overloaded"
	Title  string `json:"title"`  // the meaning of Code
	Status int    `json:"status"` // of HTTP
	Detail string `json:"detail"`
	Cure   string `json:"cure"`            // an action for the caller or the operator
	Field  string `json:"field,omitempty"` // the invalid member, parameter or header
	Index  *int   `json:"index,omitempty"` // of the invalid task of a batch, from 0

	State   ledger.State   `json:"state,omitempty"`   // of the task, if that does not allow the request
	Version ledger.Version `json:"version,omitempty"` // of the task
	// History is the path of the task's events, if an attempt at it has ended otherwise.
	History string `json:"history,omitempty"`
	// RetryAfter is the number of seconds after which the same request may succeed.
	RetryAfter int `json:"retry_after,omitempty"`
}

// Error returns the detail and the cure.
func (p *Problem) Error() string {
	if p.Cure == "" {
		return p.Detail
	}
	return p.Detail + " (" + p.Cure + ")"
}
