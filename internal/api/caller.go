package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/taskledger/taskledger/api/client"
	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/operator"
	"github.com/taskledger/taskledger/internal/reserved"
	"github.com/taskledger/taskledger/internal/subscribers"
	"github.com/taskledger/taskledger/internal/wire"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/periodic"
)

// Caller is the author of a request that [Handler.Admit] has admitted. Its methods return an error, a
// [*client.Problem], if the rules of the API do not allow an act.
type Caller struct{ c *caller }

// Name returns the name of the caller: the actor of its events.
func (c Caller) Name() string { return c.c.name }

// Role returns the role of the caller.
func (c Caller) Role() Role { return c.c.role }

// ID returns a text that is the same for all requests with the same token, and is not secret.
func (c Caller) ID() string { return c.c.id }

// IsAnonymous reports whether the caller was admitted without authentication, see [Config].
func (c Caller) IsAnonymous() bool { return c.c.name == anonymous }

// MayUse reports whether the caller may use the kind.
func (c Caller) MayUse(k ledger.Kind) bool { return c.c.mayUse(k) }

// IsLimited reports whether the caller may use some kinds only, see MayUse.
func (c Caller) IsLimited() bool { return len(c.c.kinds) > 0 }

// Has reports whether the caller's role is least or a higher one.
func (c Caller) Has(least Role) bool { return c.c.role.has(least) }

// MayChange returns an error unless the caller may change tasks of a kind: release, reschedule, bury and cancel them.
func (c Caller) MayChange(k ledger.Kind) error {
	switch {
	case !c.c.role.has(Operator):
		return c.c.forbid(Operator)
	case !c.c.mayUse(k):
		return c.c.refuseKind(k)
	case reserved.IsKind(k) && !c.c.role.has(Admin):
		return problem(codeForbidden, "only the role admin may change tasks of taskledger itself")
	}
	return nil
}

// MayControl returns an error unless the caller may pause and resume a kind and its schedules.
func (c Caller) MayControl(k ledger.Kind) error {
	switch {
	case !c.c.role.has(Admin):
		return c.c.forbid(Admin)
	case !c.c.mayUse(k):
		return c.c.refuseKind(k)
	}
	return nil
}

// forbid returns the problem of a caller without the role least.
func (c *caller) forbid(least Role) *client.Problem {
	return problem(codeForbidden, c.name+" has the role "+string(c.role)+", and this call needs "+string(least))
}

// Admit returns the caller of a request. It checks the caller's role, which must be least or higher, and its rate. It
// is for other handlers that share the API's callers, such as the console. The error is a [*client.Problem] or a
// database error.
func (h *Handler) Admit(r *http.Request, least Role) (Caller, error) {
	c, err := h.authenticate(r)
	if err != nil {
		return Caller{}, err
	}
	if !c.role.has(least) {
		return Caller{}, c.forbid(least)
	}
	if delay := h.registry.admit(c); delay > 0 {
		return Caller{}, retryIn(problem(codeRate, c.name+" has reached its rate"), delay)
	}
	return Caller{c}, nil
}

// Describe returns the problem that an error means. It returns false if the error is a failure of the server, which
// belongs in a log.
func Describe(err error) (p *client.Problem, isExpected bool) { return describe(err) }

// Change is a change of a task by a caller.
type Change string

// The changes.
const (
	Release Change = "release"
	Bury    Change = "bury"
	Cancel  Change = "cancel"
)

// ChangeTask changes a task by the rules of the API. Unlike the API, [Cancel] also ends a dead task, see
// [operator.Operator.CancelDeadTask]. It commits. It returns a [*client.Problem], or an error of [ledger.Cancel].
func (h *Handler) ChangeTask(ctx context.Context, c Caller, k ledger.Key, change Change, reason string) error {
	if err := c.MayChange(k.Kind); err != nil {
		return err
	}
	audit := c.c.audit(reason)
	o := &ledger.ChangeOptions{Actor: audit.Actor, Reason: audit.Reason}
	err := h.changeOne(ctx, k, string(change), wire.Change{Reason: reason}, o)
	if t := (*ledger.TransitionError)(nil); change == Cancel && errors.As(err, &t) && t.State == ledger.StateDead {
		return h.operator.CancelDeadTask(ctx, k, audit)
	}
	return err
}

// ReleaseGroup releases at most limit dead tasks of a kind whose errors share a fingerprint, by the rules of the API.
// With isDryRun it only counts them. It commits in batches. It returns the errors of [Handler.ChangeTask].
func (h *Handler) ReleaseGroup(
	ctx context.Context, c Caller, kind ledger.Kind, fingerprint, reason string, limit int, isDryRun bool,
) (operator.BulkResult, error) {
	if err := c.MayChange(kind); err != nil {
		return operator.BulkResult{}, err
	}
	f := operator.Filter{Kind: kind, State: ledger.StateDead, Fingerprint: fingerprint, Limit: limit}
	return h.operator.ReleaseAll(ctx, f, c.c.audit(reason), &operator.BulkOptions{DryRun: isDryRun})
}

// CancelGroup ends at most limit dead tasks of a group that shall never run, see [operator.Operator.CancelDead], by the
// rules of the API. It commits each. It returns the errors of [Handler.ChangeTask].
func (h *Handler) CancelGroup(
	ctx context.Context, c Caller, kind ledger.Kind, fingerprint, reason string, limit int,
) (operator.BulkResult, error) {
	if err := c.MayChange(kind); err != nil {
		return operator.BulkResult{}, err
	}
	f := operator.Filter{Kind: kind, State: ledger.StateDead, Fingerprint: fingerprint, Limit: limit}
	return h.operator.CancelDead(ctx, f, c.c.audit(reason))
}

// PauseKind pauses or resumes a kind by the rules of the API, and reports whether that changed anything. It commits.
func (h *Handler) PauseKind(ctx context.Context, c Caller, k ledger.Kind, pause bool, reason string) (bool, error) {
	if err := c.MayControl(k); err != nil {
		return false, err
	}
	if pause {
		return h.operator.PauseKind(ctx, k, c.c.audit(reason))
	}
	return h.operator.ResumeKind(ctx, k, c.c.audit(reason))
}

// ScheduleAct is an act on a schedule by a caller.
type ScheduleAct string

// The acts.
const (
	PauseSchedule  ScheduleAct = "pause"
	ResumeSchedule ScheduleAct = "resume"
	RunSchedule    ScheduleAct = "run" // enqueues a task of it now
)

// ChangeSchedule pauses, resumes or runs a schedule by the rules of the API. It returns the task of [RunSchedule]. It
// commits. It returns a [*client.Problem], or an error of package periodic.
func (h *Handler) ChangeSchedule(
	ctx context.Context, c Caller, name string, act ScheduleAct, reason string,
) (task ledger.Key, err error) {
	if !c.Has(Admin) { // the answer must not show whether the schedule exists
		return task, c.c.forbid(Admin)
	}
	s, err := periodic.Load(ctx, h.config.DB, name)
	if err != nil {
		return task, err
	}
	if err := c.MayControl(s.Schedule.Kind); err != nil {
		return task, err
	}
	a := c.c.audit(reason)
	switch act {
	case PauseSchedule:
		return task, periodic.Pause(ctx, h.config.DB, name, a.Actor, a.Reason)
	case ResumeSchedule:
		return task, periodic.Resume(ctx, h.config.DB, name, a.Actor, a.Reason)
	case RunSchedule:
		made, err := periodic.RunNow(ctx, h.config.DB, name, a.Actor, a.Reason)
		return made.Key, err
	}
	return task, &ledger.InvalidError{Field: "act", Value: string(act), Rule: "must be pause, resume or run"}
}

// SubscriberAct is an act on a subscriber by a caller.
type SubscriberAct string

// The acts.
const (
	PauseSubscriber  SubscriberAct = "pause"
	ResumeSubscriber SubscriberAct = "resume"
	SeekSubscriber   SubscriberAct = "seek" // moves it to a place
)

// ChangeSubscriber pauses, resumes or moves a subscriber that exists, by the rules of the API. The place to is for
// [SeekSubscriber] only. It commits. It returns a [*client.Problem], or an error of package outbox.
func (h *Handler) ChangeSubscriber(
	ctx context.Context, c Caller, name string, act SubscriberAct, to feed.Start, reason string,
) error {
	switch {
	case !c.Has(Admin):
		return c.c.forbid(Admin)
	case c.IsLimited():
		return problem(codeForbidden, "a subscriber reads all kinds, and "+c.Name()+" is limited to some")
	}
	state, err := subscribers.ReadState(ctx, h.config.DB, name)
	if err != nil {
		return err
	}
	if act == SeekSubscriber && len(state.Tables) > 0 {
		rule := "subscriber %s has tables, which a move would make wrong: taskledger rebuild tables %[1]s"
		return invalid("name", rule, name)
	}
	a := c.c.audit(reason)
	switch act {
	case PauseSubscriber, ResumeSubscriber:
		return subscribers.Pause(ctx, h.config.DB, name, act == PauseSubscriber, a.Actor, a.Reason)
	case SeekSubscriber:
		return subscribers.Seek(ctx, h.config.DB, name, to, a.Actor, a.Reason)
	}
	return &ledger.InvalidError{Field: "act", Value: string(act), Rule: "must be pause, resume or seek"}
}

// audit returns the author of a change and its reason.
func (c *caller) audit(reason string) operator.Audit {
	return operator.Audit{Actor: c.name, Reason: reason}
}

// HistoryPage is a part of the events of a task.
type HistoryPage = client.List[ledger.Event]

// ReadHistory returns the events of a task after a version, up to a number and a size. The page's Next is the version
// to continue after, "" at the end. It returns [ledger.ErrUnknownTask] for a task without events.
func ReadHistory(
	ctx context.Context, db ledger.DB, k ledger.Key, after ledger.Version, limit int,
) (HistoryPage, error) {
	return readHistory(ctx, db, k, int64(after), limit)
}
