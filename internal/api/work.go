package api

import (
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/taskledger/taskledger/api/client"
	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/internal/remote"
	"github.com/taskledger/taskledger/internal/reserved"
	"github.com/taskledger/taskledger/internal/wire"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

const (
	maxAsked       = 100 // tasks, and kinds, of a request
	maxHeld        = 10_000
	maxHoldsBytes  = 4 << 20 // a fence has about 150 bytes
	maxWorkTimeout = 24 * time.Hour
	workWait       = 20 * time.Second
	workTimeout    = 15 * time.Minute
	maxFence       = 1000 // bytes
)

var (
	workerRule  = regexp.MustCompile(`^[A-Za-z0-9._@+-]{1,128}$`)
	sessionRule = regexp.MustCompile(`^[A-Za-z0-9_-]{16,64}$`)
)

// decodeWork reads the body of a call of a worker.
func decodeWork[T any](h *Handler, w http.ResponseWriter, r *http.Request, most int64) (body T, err error) {
	if err := parseQuery(r).err; err != nil {
		return body, err
	}
	if err := h.decode(w, r, most, false, &body); err != nil {
		return body, err
	}
	if h.config.Work == nil {
		return body, problem(codeWorkOff, "this server gives out no work")
	}
	return body, nil
}

// postWork gives tasks to a worker.
func (h *Handler) postWork(w http.ResponseWriter, r *http.Request, c *caller) error {
	body, err := decodeWork[wire.Ask](h, w, r, maxBodyBytes)
	if err != nil {
		return err
	}
	ask, err := c.ask(body)
	if err != nil {
		return err
	}
	if ask.Wait > 0 {
		leave, err := h.waiting.enter(c)
		if err != nil {
			return err
		}
		defer leave()
	}
	begun := time.Now()
	if ask.Wait > hintWait && len(h.kinds.unknown(r.Context(), c, ask.Kinds, time.Time{})) > 0 {
		ask.FirstWait = hintWait
	}
	given, err := h.config.Work.Ask(r.Context(), c.name, ask)
	if err == nil && ask.Wait > 0 {
		err = h.checkAgain(r, c)
	}
	if err != nil {
		return workProblem(err)
	}
	answer := wire.Asked{
		Protocol: wire.Protocol, Batch: given.Batch, HeartbeatEvery: h.heartbeatEvery(),
		Tasks: make([]wire.Task, len(given.Tasks)),
	}
	for i, t := range given.Tasks {
		answer.Tasks[i] = workTask(t)
	}
	if len(given.Tasks) == 0 {
		answer.UnknownKinds = h.kinds.unknown(r.Context(), c, ask.Kinds, begun)
	}
	return h.writeJSON(w, r, http.StatusOK, answer)
}

// heartbeatEvery returns the time between two heartbeats in seconds.
func (h *Handler) heartbeatEvery() float64 { return h.config.Work.Term().Seconds() / 3 }

func workTask(t remote.Task) wire.Task {
	task := wire.Task{
		Kind: t.Kind, BizID: t.BizID, Version: t.Version, Attempt: t.Attempt, Fence: t.Fence, Priority: t.Priority,
		AvailableAt: t.AvailableAt, FinishBy: t.FinishBy, Timeout: t.Timeout.Seconds(),
		Traceparent: t.Traceparent, Tracestate: t.Tracestate, Again: t.Again,
	}
	if json.Valid(t.Args) {
		task.Args = t.Args
	} else {
		task.ArgsBase64 = t.Args
	}
	return task
}

// ask checks a request for tasks, and adds the defaults.
func (c *caller) ask(a wire.Ask) (remote.Ask, error) {
	ask := remote.Ask{Worker: a.Worker, Session: a.Session, Kinds: a.Kinds,
		Guarantee: string(a.Guarantee), Limit: a.Limit, Wait: workWait, Received: a.Received,
		Timeout: workTimeout}
	if err := checkProtocol(wire.Protocol, a.Protocol); err != nil {
		return ask, err
	}
	if !workerRule.MatchString(a.Worker) {
		return ask, invalid("worker", "must be 1 to 128 of A-Z, a-z, 0-9 and . _ @ + -")
	}
	if err := checkSession(a.Session); err != nil {
		return ask, err
	}
	if len(a.Kinds) < 1 || len(a.Kinds) > maxAsked {
		return ask, invalid("kinds", "must be 1 to %d kinds, got %d", maxAsked, len(a.Kinds))
	}
	for _, k := range a.Kinds {
		if err := c.mayWorkOn(k); err != nil {
			return ask, err
		}
	}
	switch workers.Guarantee(ask.Guarantee) {
	case "":
		ask.Guarantee = string(workers.AtLeastOnce)
	case workers.AtLeastOnce, workers.AtMostOnce, workers.ExactlyOnce:
	default:
		return ask, invalid("guarantee", "must be at least once, at most once or exactly once")
	}
	if a.Limit < 1 || a.Limit > maxAsked {
		return ask, invalid("limit", "must be between 1 and %d, got %d", maxAsked, a.Limit)
	}
	if a.Wait != nil {
		if *a.Wait < 0 || *a.Wait > maxWait.Seconds() {
			return ask, invalid("wait", "must be between 0 and %d seconds", int(maxWait.Seconds()))
		}
		ask.Wait = time.Duration(*a.Wait * float64(time.Second))
	}
	if a.Timeout != 0 {
		if a.Timeout < 1 || a.Timeout > maxWorkTimeout.Seconds() {
			return ask, invalid("timeout", "must be between 1 and %d seconds", int(maxWorkTimeout.Seconds()))
		}
		ask.Timeout = time.Duration(a.Timeout * float64(time.Second))
	}
	return ask, nil
}

// mayWorkOn returns an error unless the caller may take tasks of a kind.
func (c *caller) mayWorkOn(k ledger.Kind) error {
	if err := k.Validate(); err != nil {
		return err
	}
	if !c.mayUse(k) {
		return c.refuseKind(k)
	}
	if reserved.IsKind(k) {
		return problem(codeForbidden, "the tasks of taskledger itself are not for other workers")
	}
	return nil
}

// checkProtocol returns an error unless a server of one version of the protocol answers clients of another version: of
// its major version, and of its minor version or an earlier one.
func checkProtocol(server, version string) error {
	if version == "" {
		return nil
	}
	ours, theirs := parseProtocol(server), parseProtocol(version)
	if theirs != nil && theirs[0] == ours[0] && theirs[1] <= ours[1] {
		return nil
	}
	p := invalid("protocol", "must be %s, or an earlier minor version, got %s", server,
		printable.Short(version, 80))
	if p.Cure = "upgrade the server, or use an older client"; theirs != nil && theirs[0] < ours[0] {
		p.Cure = "upgrade the client"
	}
	return p
}

// parseProtocol returns the major and the minor version, nil if the text is malformed.
func parseProtocol(version string) []int {
	major, minor, _ := strings.Cut(version, ".")
	a, err1 := strconv.ParseUint(major, 10, 16)
	b, err2 := strconv.ParseUint(minor, 10, 16)
	if err1 != nil || err2 != nil {
		return nil
	}
	return []int{int(a), int(b)}
}

func checkSession(session string) error {
	if !sessionRule.MatchString(session) {
		return invalid("session", "must be 16 to 64 of A-Z, a-z, 0-9, _ and -, made at random by the process")
	}
	return nil
}

// attempt checks the attempt of a call.
func (c *caller) attempt(a wire.AttemptRef) (remote.AttemptRef, error) {
	k := ledger.Key{Kind: a.Kind, BizID: a.BizID}
	checked := remote.AttemptRef{Key: k, Attempt: a.Attempt, Fence: a.Fence}
	if err := k.ValidateStored(); err != nil {
		return checked, err
	}
	if err := c.mayWorkOn(a.Kind); err != nil {
		return checked, err
	}
	if a.Attempt < 1 {
		return checked, invalid("attempt", "must be the attempt of a task as it was given")
	}
	if a.Fence == "" || len(a.Fence) > maxFence {
		p := invalid("fence", "must be the fence of a task as it was given")
		p.Cure = "send the task's fence; a task without one is finished in SQL, by taskledger.finish"
		return checked, p
	}
	return checked, nil
}

// postHeartbeat renews the tasks of a worker.
func (h *Handler) postHeartbeat(w http.ResponseWriter, r *http.Request, c *caller) error {
	body, err := decodeWork[wire.Heartbeat](h, w, r, maxHoldsBytes)
	if err == nil {
		err = errors.Join(checkSession(body.Session), checkHolds(body.Holds))
	}
	if err != nil {
		return err
	}
	answer := wire.Beaten{HeartbeatEvery: h.heartbeatEvery(), Ended: []wire.Ended{}}
	for _, e := range h.config.Work.Heartbeat(r.Context(), c.name, body.Session, body.Holds) {
		answer.Ended = append(answer.Ended,
			wire.Ended{Kind: e.Kind, BizID: e.BizID, Fence: e.Fence, Reason: string(e.Reason)})
	}
	return h.writeJSON(w, r, http.StatusOK, answer)
}

func checkHolds(fences []string) error {
	if len(fences) > maxHeld {
		return invalid("holds", "must be at most %d fences, got %d", maxHeld, len(fences))
	}
	for _, f := range fences {
		if f == "" || len(f) > maxFence {
			return invalid("holds", "must be fences of tasks as they were given")
		}
	}
	return nil
}

// postFinish ends an attempt with a result, or several.
func (h *Handler) postFinish(w http.ResponseWriter, r *http.Request, c *caller) error {
	body, err := decodeWork[wire.FinishMany](h, w, r, maxBodyBytes)
	if err != nil {
		return err
	}
	if body.Tasks == nil {
		return h.end(w, r, c, body.AttemptRef, resultOf(body.Finish), nil)
	}
	if body.AttemptRef != (wire.AttemptRef{}) || body.Result != nil || len(body.Tasks) > maxAsked {
		return invalid("tasks", "must be at most %d attempts, without the members of one attempt", maxAsked)
	}
	outcomes := make([]remote.Outcome, len(body.Tasks))
	for i, t := range body.Tasks {
		a, err := c.attempt(t.AttemptRef)
		if err != nil {
			return withIndex(err, i)
		}
		outcomes[i] = remote.Outcome{AttemptRef: a, Result: resultOf(t)}
	}
	answer := wire.Tasks[wire.Finished[client.Problem]]{Tasks: make([]wire.Finished[client.Problem], len(outcomes))}
	for i, s := range h.config.Work.End(r.Context(), c.name, outcomes...) {
		answer.Tasks[i].State = s.State
		if s.Err != nil {
			p, isExpected := describe(workProblem(s.Err))
			if !isExpected {
				return s.Err
			}
			answer.Tasks[i].Problem = p
		}
	}
	return h.writeJSON(w, r, http.StatusOK, answer)
}

// withIndex returns the problem of an error, with the index of the task.
func withIndex(err error, i int) error {
	p, isExpected := describe(err)
	if !isExpected {
		return err
	}
	p.Index = &i
	return p
}

// resultOf returns the result of a task; nil: none.
func resultOf(f wire.Finish) json.RawMessage {
	if string(f.Result) == "null" {
		return nil
	}
	return f.Result
}

// end ends an attempt, and answers with the state of the task.
func (h *Handler) end(
	w http.ResponseWriter, r *http.Request, c *caller, of wire.AttemptRef, result json.RawMessage, failure error,
) error {
	a, err := c.attempt(of)
	if err != nil {
		return err
	}
	ended := h.config.Work.End(r.Context(), c.name,
		remote.Outcome{AttemptRef: a, Result: result, Err: failure})[0]
	if ended.Err != nil {
		return workProblem(ended.Err)
	}
	return h.writeJSON(w, r, http.StatusOK, wire.Outcome{State: ended.State})
}

// postFail ends an attempt with an error.
func (h *Handler) postFail(w http.ResponseWriter, r *http.Request, c *caller) error {
	body, err := decodeWork[wire.Fail](h, w, r, maxBodyBytes)
	if err != nil {
		return err
	}
	if body.Error == "" {
		return invalid("error", "must be the text of the error")
	}
	reported := &remote.Error{Message: body.Error, Type: body.ErrorType, Stack: body.Stack}
	if len(body.Retry) > 0 && string(body.Retry) != "null" {
		policy, err := ledger.ParseRetryPolicy(body.Retry)
		if err != nil {
			return invalid("retry", "%s", err)
		}
		reported.Retry = &policy
	}
	var failure error = reported
	if body.RetryIn != nil {
		if body.Permanent {
			return invalid("retry_in", "must not be set together with permanent")
		}
		in, err := seconds("retry_in", *body.RetryIn)
		if err != nil {
			return err
		}
		failure = workers.RetryIn(in, failure)
	}
	if body.Permanent {
		failure = workers.Permanent(failure)
	}
	if body.Safe {
		failure = workers.SafeToRetry(failure)
	}
	return h.end(w, r, c, body.AttemptRef, nil, failure)
}

// postSnooze ends an attempt without a failure.
func (h *Handler) postSnooze(w http.ResponseWriter, r *http.Request, c *caller) error {
	body, err := decodeWork[wire.Snooze](h, w, r, maxBodyBytes)
	if err != nil {
		return err
	}
	switch {
	case (body.In == nil) == body.At.IsZero():
		return invalid("in", "either in or at must be set")
	case body.In == nil:
		return h.end(w, r, c, body.AttemptRef, nil, workers.SnoozeUntil(body.At))
	}
	in, err := seconds("in", *body.In)
	if err != nil {
		return err
	}
	return h.end(w, r, c, body.AttemptRef, nil, workers.SnoozeFor(in))
}

// postProgress records how far an attempt is.
func (h *Handler) postProgress(w http.ResponseWriter, r *http.Request, c *caller) error {
	body, err := decodeWork[wire.ReportProgress](h, w, r, maxBodyBytes)
	if err != nil {
		return err
	}
	if len(body.Progress) == 0 {
		return invalid("progress", "must be JSON")
	}
	a, err := c.attempt(body.AttemptRef)
	if err != nil {
		return err
	}
	ctx, cancel := database(r)
	defer cancel()
	if err := h.config.Work.Progress(ctx, c.name, a, body.Progress); err != nil {
		return workProblem(err)
	}
	return h.writeJSON(w, r, http.StatusOK, wire.Outcome{State: ledger.StateRunning})
}

// postRelease gives back the tasks of a worker.
func (h *Handler) postRelease(w http.ResponseWriter, r *http.Request, c *caller) error {
	body, err := decodeWork[wire.Release](h, w, r, maxHoldsBytes)
	if err == nil {
		err = errors.Join(checkSession(body.Session), checkHolds(body.Holds))
	}
	if err != nil {
		return err
	}
	n, err := h.config.Work.Release(r.Context(), c.name, body.Session, body.Holds)
	if err != nil {
		return workProblem(err)
	}
	return h.writeJSON(w, r, http.StatusOK, wire.Released{Released: n})
}

// workProblem returns the problem of an error of the gateway.
func workProblem(err error) error {
	var ended *remote.EndedError
	var guarantee *workers.GuaranteeError
	switch {
	case errors.As(err, &ended):
		p := problem(codeAttemptEnded, printable.Text(ended.Error()))
		if ended.State != "" {
			p.State, p.Version, p.History = ended.State, ended.Version, client.Path(ended.Key)+"/events"
		}
		return p
	case errors.As(err, &guarantee):
		return problem(codeGuarantee, printable.Text(guarantee.Error()))
	case errors.Is(err, workers.ErrStopping):
		return problem(codeShutdown, "the server is shutting down")
	}
	return err
}
