package wire

import (
	"encoding/json"
	"time"

	"github.com/taskledger/taskledger/ledger"
)

// Protocol is the version of the work protocol, docs/work-over-http.md: major and minor.
const Protocol = "1.0"

// Ask is the body of POST /v1/work: a worker asks for tasks.
type Ask struct {
	Worker  string        `json:"worker"`  // a name for people
	Session string        `json:"session"` // of the process: random, made when it starts
	Kinds   []ledger.Kind `json:"kinds"`   // 1 to 100
	// Guarantee is "at least once", "at most once" or "exactly once". Default: "at least once".
	Guarantee string `json:"guarantee,omitempty"`
	Limit     int    `json:"limit"` // how many more tasks the worker takes now, 1 to 100
	// Wait is the number of seconds to wait for a first task, 0 to 50. Default: 20.
	Wait     *float64 `json:"wait,omitempty"`
	Received string   `json:"received,omitempty"` // Asked.Batch of the last answer that the worker has read
	// Timeout is the number of seconds that an attempt may take, 1 to 86400. Default: 900.
	Timeout  float64 `json:"timeout,omitempty"`
	Protocol string  `json:"protocol,omitempty"` // Default: "1.0".
}

// Asked is the answer to an [Ask].
type Asked struct {
	Protocol       string  `json:"protocol"` // of the server
	Batch          string  `json:"batch"`    // for Ask.Received
	HeartbeatEvery float64 `json:"heartbeat_every"`
	Tasks          []Task  `json:"tasks"`
	// UnknownKinds is a hint, in an answer without tasks. The worker waits for their first task all the same.
	UnknownKinds []UnknownKind `json:"unknown_kinds,omitempty"`
}

// UnknownKind is a kind of an [Ask] that never had a task.
type UnknownKind struct {
	Kind    ledger.Kind   `json:"kind"`
	Similar []ledger.Kind `json:"similar,omitempty"` // that have or had tasks, and that the caller may use
	Detail  string        `json:"detail"`            // a sentence for people
}

// AttemptRef identifies an attempt that a worker was given.
type AttemptRef struct {
	Kind    ledger.Kind    `json:"kind"`
	BizID   ledger.BizID   `json:"biz_id"`
	Attempt ledger.Attempt `json:"attempt"`
	Fence   string         `json:"fence"` // "" for a task to be claimed in SQL
}

// Task is a task that a worker was given.
type Task struct {
	Kind    ledger.Kind    `json:"kind"`
	BizID   ledger.BizID   `json:"biz_id"`
	Version ledger.Version `json:"version"` // of the event that made the task available
	Attempt ledger.Attempt `json:"attempt"`
	Fence   string         `json:"fence,omitempty"`
	// Args is missing for a task without args. Args that are not JSON are in ArgsBase64.
	Args        json.RawMessage `json:"args,omitempty"`
	ArgsBase64  []byte          `json:"args_base64,omitempty"`
	Priority    ledger.Priority `json:"priority"`
	AvailableAt time.Time       `json:"available_at"`
	FinishBy    time.Time       `json:"finish_by,omitzero"`
	Timeout     float64         `json:"timeout"` // in seconds
	Traceparent string          `json:"traceparent,omitempty"`
	Tracestate  string          `json:"tracestate,omitempty"`
	Again       bool            `json:"again,omitempty"` // it was given before, in an answer that may be lost
}

// Ref returns the attempt of the task.
func (t Task) Ref() AttemptRef {
	return AttemptRef{Kind: t.Kind, BizID: t.BizID, Attempt: t.Attempt, Fence: t.Fence}
}

// Finish is the body of POST /v1/work:finish.
type Finish struct {
	AttemptRef
	Result json.RawMessage `json:"result,omitempty"` // at most 256 KiB
}

// FinishMany is the body of POST /v1/work:finish with several attempts: Tasks replaces the members of [Finish].
type FinishMany struct {
	Finish
	Tasks []Finish `json:"tasks,omitempty"` // at most 100
}

// Finished is the state of a task after a success, or the problem that kept it from being recorded. The answer to a
// [FinishMany] is a [Tasks] of them, in the order of its tasks.
type Finished[P any] struct {
	State   ledger.State `json:"state,omitempty"`
	Problem *P           `json:"problem,omitempty"`
}

// Fail is the body of POST /v1/work:fail.
type Fail struct {
	AttemptRef
	Error     string `json:"error"`
	ErrorType string `json:"error_type,omitempty"`
	Stack     string `json:"stack,omitempty"`
	Permanent bool   `json:"permanent,omitempty"` // the task is dead
	// RetryIn is the number of seconds until the next attempt. Default: by the retry policy.
	RetryIn *float64 `json:"retry_in,omitempty"`
	// Retry is the [ledger.RetryPolicy] for a task without its own. Default: the default policy.
	Retry json.RawMessage `json:"retry,omitempty"`
	Safe  bool            `json:"safe,omitempty"` // at most once: nothing has happened, so the task may be tried again
}

// Snooze is the body of POST /v1/work:snooze. One of In and At is required.
type Snooze struct {
	AttemptRef
	In *float64  `json:"in,omitempty"` // seconds
	At time.Time `json:"at,omitzero"`
}

// ReportProgress is the body of POST /v1/work:progress.
type ReportProgress struct {
	AttemptRef
	Progress json.RawMessage `json:"progress"` // at most 16 KiB
}

// Outcome is the answer to [Finish], [Fail], [Snooze] and [ReportProgress].
type Outcome struct {
	State ledger.State `json:"state"` // of the task
}

// Heartbeat is the body of POST /v1/work:heartbeat.
type Heartbeat struct {
	Session string   `json:"session"`
	Holds   []string `json:"holds"` // the fences of all tasks at work
}

// Beaten is the answer to a [Heartbeat].
type Beaten struct {
	HeartbeatEvery float64 `json:"heartbeat_every"`
	Ended          []Ended `json:"ended"`
}

// Ended is an attempt that is over, although its worker has not reported an outcome.
type Ended struct {
	Kind   ledger.Kind  `json:"kind,omitempty"` // "" if the fence is unknown
	BizID  ledger.BizID `json:"biz_id,omitempty"`
	Fence  string       `json:"fence"`
	Reason string       `json:"reason"` // cancelled, timeout, deadline, fenced or unknown
}

// Release is the body of POST /v1/work:release.
type Release struct {
	Session string   `json:"session"`
	Holds   []string `json:"holds,omitempty"` // Default: all tasks of the session.
}

// Released is the answer to a [Release].
type Released struct {
	Released int `json:"released"` // tasks
}
