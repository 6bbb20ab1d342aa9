package api

import (
	"errors"
	"net/http"
	"strings"

	"github.com/taskledger/taskledger/api/client"
	"github.com/taskledger/taskledger/internal/durably"
	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/ledger"
)

// postTask enqueues a task, and waits for its result if the request prefers that.
func (h *Handler) postTask(w http.ResponseWriter, r *http.Request, c *caller) error {
	if err := parseQuery(r).err; err != nil {
		return err
	}
	prefer := parsePrefer(r.Header)
	isCreateOnly, err := parseCreateOnly(r)
	if err != nil {
		return err
	}
	var task client.NewTask
	if err := h.decode(w, r, maxBodyBytes, false, &task); err != nil {
		return err
	}
	idempotencyKey, err := parseIdempotencyKey(r.Header)
	if err != nil {
		return err
	}
	if task.BizID == "" {
		task.BizID = ledger.BizID(idempotencyKey)
	}
	entry, err := c.entry(task, r.Header)
	if err != nil {
		return err
	}
	if prefer.wait > 0 {
		leave, err := h.waiting.enter(c)
		if err != nil {
			return err
		}
		defer leave()
	}
	again := entry.Options.IfExists
	if isCreateOnly && again != ledger.IfExistsSame && again != ledger.IfExistsIgnore {
		return invalid("If-None-Match", "must not be set together with if_exists %s", again)
	}
	ctx, cancel := database(r)
	defer cancel()
	var enqueued ledger.Enqueued
	err = durably.Do(ctx, h.config.DB, func(tx *ledger.Tx) (err error) {
		enqueued, err = ledger.Enqueue(ctx, tx, entry.Key, entry.Args, entry.Options)
		return c.checkRuns(ctx, tx, []ledger.Entry{entry}, err)
	})
	if other, ok := errors.AsType[*ledger.OtherArgsError](err); ok {
		enqueued, err = other.Existing, nil
	}
	if err != nil {
		return err
	}
	w.Header().Set("Location", client.Path(entry.Key))
	if isCreateOnly && !enqueued.New {
		return failedPrecondition("If-None-Match", enqueued.State, enqueued.Version)
	}
	if !enqueued.SameArgs && entry.Options.IfExists != ledger.IfExistsIgnore {
		p := problem(codeOtherArgs, "the task "+entry.Key.String()+" exists with other args")
		if enqueued.Difference != "" {
			p.Detail += ": " + enqueued.Difference
		}
		p.State, p.Version = enqueued.State, enqueued.Version
		return p
	}
	answer := client.Enqueued{Enqueued: enqueued}
	status := http.StatusOK
	switch {
	case enqueued.New && !prefer.isAsync:
		status = http.StatusCreated
	case prefer.isAsync && !enqueued.State.Finished():
		status = http.StatusAccepted
	}
	switch {
	case prefer.wait > 0 && enqueued.Archived: // the answer is complete without its files
		if t, err := h.loadAny(r, entry.Key); err == nil {
			answer.Task = &t
		}
	case prefer.wait > 0:
		t, err := h.awaitFinished(r, entry.Key, prefer.wait)
		if err == nil {
			err = h.checkAgain(r, c)
		}
		if err != nil {
			return err
		}
		answer.Task, answer.State, answer.Version = &t, t.State, t.Version
		if status = http.StatusOK; !isFinished(t) {
			status = http.StatusAccepted
		}
	}
	prefer.setApplied(w)
	setVersion(w, answer.Version)
	return h.writeJSON(w, r, status, answer)
}

func isFinished(t ledger.Task) bool { return t.State.Finished() }

// parseCreateOnly reports whether a request enqueues a task only if it does not exist.
func parseCreateOnly(r *http.Request) (bool, error) {
	p, err := parsePreconditions(r)
	switch {
	case err != nil:
		return false, err
	case p.match != nil:
		return false, invalid("If-Match", "is for changes of a task; If-None-Match: * enqueues only a new one")
	case p.noneMatch != nil && !(len(p.noneMatch) == 1 && p.noneMatch[0].isAny):
		return false, invalid("If-None-Match", "must be *")
	}
	return p.noneMatch != nil, nil
}

// entry returns a task to enqueue, with the caller as its actor.
func (c *caller) entry(t client.NewTask, header http.Header) (ledger.Entry, error) {
	e := ledger.Entry{Key: ledger.Key{Kind: t.Kind, BizID: t.BizID}, Args: t.Args}
	if err := t.Kind.Validate(); err != nil {
		return e, err
	}
	if !c.mayUse(t.Kind) {
		return e, c.refuseKind(t.Kind)
	}
	if t.BizID == "." || t.BizID == ".." {
		return e, invalid("biz_id", "must not be . or .., whose path browsers and many clients cannot send")
	}
	if t.DataVersion < 0 || t.DataVersion > 32767 {
		return e, invalid("data_version", "must be between 1 and 32767")
	}
	runIn, err := seconds("run_in", t.RunIn)
	if err != nil {
		return e, err
	}
	o := &ledger.EnqueueOptions{Shard: t.Shard, Actor: c.name, RunAt: t.RunAt, RunIn: runIn, StartBy: t.StartBy,
		FinishBy: t.FinishBy, DataVersion: t.DataVersion, Priority: t.Priority, Partition: t.Partition,
		OrderKey: t.OrderKey, PassIfDead: t.PassIfDead, CheckArchive: t.CheckArchive}
	if o.IfExists, err = ledger.ParseIfExists(string(t.IfExists)); err != nil {
		return e, err
	}
	if o.DeferAtMost, err = seconds("defer_at_most", t.DeferAtMost); err != nil {
		return e, err
	}
	if o.ThrottleFor, err = seconds("throttle_for", t.ThrottleFor); err != nil {
		return e, err
	}
	o.Meta.Tags = t.Tags
	o.Meta.Traceparent, o.Meta.Tracestate = traceContext(header)
	if len(t.Retry) > 0 && string(t.Retry) != "null" {
		o.Meta.Retry = t.Retry
	}
	e.Options = o
	return e, c.setAfter(o, t.After)
}

// setAfter sets the predecessors of a task, whose results its handler can read. The caller must be allowed to use their
// kinds.
func (c *caller) setAfter(o *ledger.EnqueueOptions, after *ledger.After) error {
	if after == nil {
		return nil
	}
	if len(after.Keys) == 0 {
		return invalid("after", "must have keys, an array of at least one kind and biz_id")
	}
	for _, k := range after.Keys {
		if k.ValidateStored() == nil && !c.mayUse(k.Kind) {
			return c.refuseKind(k.Kind)
		}
	}
	o.After, o.Otherwise = after.Keys, after.Otherwise
	return nil
}

// traceContext returns the headers of W3C's trace context. Invalid headers never fail a request: they count as "".
func traceContext(header http.Header) (traceparent, tracestate string) {
	traceparent = header.Get("Traceparent")
	isValid := len(traceparent) == 55 && strings.Trim(traceparent, "0123456789abcdef-") == ""
	if !isValid {
		return "", ""
	}
	tracestate = strings.Join(header.Values("Tracestate"), ",")
	if len(tracestate) > 512 || strings.ContainsFunc(tracestate, func(c rune) bool { return c < ' ' || c > '~' }) {
		tracestate = ""
	}
	return traceparent, tracestate
}

// parseIdempotencyKey returns the header Idempotency-Key, "" if it is missing. It may be quoted, as in the draft of the
// IETF.
func parseIdempotencyKey(header http.Header) (string, error) {
	values := header.Values("Idempotency-Key")
	if len(values) == 0 {
		return "", nil
	}
	key := strings.TrimSpace(values[0])
	if len(key) >= 2 && strings.HasPrefix(key, `"`) && strings.HasSuffix(key, `"`) {
		key = key[1 : len(key)-1]
	}
	if len(values) > 1 || ledger.BizID(key).Validate() != nil {
		return "", invalid("Idempotency-Key",
			"must be sent once, with 1 to 255 bytes of UTF-8 without control characters")
	}
	return key, nil
}

// getTask returns a task. With wait, it waits until the task is finished. With If-None-Match, it waits until the task's
// version changes.
func (h *Handler) getTask(w http.ResponseWriter, r *http.Request, c *caller) error {
	q := parseQuery(r, "wait")
	prefer := parsePrefer(r.Header)
	if q.values.Has("wait") {
		var ok bool
		if prefer.wait, ok = parseWait(q.values.Get("wait")); !ok {
			q.fault("wait", "must be a whole number of seconds, got %s", printable.Short(q.values.Get("wait"), 80))
		}
		prefer.applied = nil
	}
	if q.err != nil {
		return q.err
	}
	k, err := key(r, c, r.PathValue("biz_id"))
	if err != nil {
		return err
	}
	conditions, err := parsePreconditions(r)
	if err != nil {
		return err
	}
	known := conditions.noneMatch
	done := isFinished
	if known != nil {
		done = func(t ledger.Task) bool { return !known.have(t.Version) }
	}
	t, err := h.loadAny(r, k)
	if err == nil {
		err = conditions.check(t, true)
	}
	if err == nil && prefer.wait > 0 && !done(t) {
		var leave func()
		if leave, err = h.waiting.enter(c); err != nil {
			return err
		}
		defer leave()
		if known != nil {
			t, err = h.await(r, k, prefer.wait, done)
		} else {
			t, err = h.awaitFinished(r, k, prefer.wait)
		}
		if err == nil {
			err = h.checkAgain(r, c)
		}
	}
	if err != nil {
		return err
	}
	prefer.setApplied(w)
	setVersion(w, t.Version)
	if known != nil && !done(t) {
		if acceptsGzip(r) && known.haveZipped(t.Version) {
			setZippedTag(w.Header())
		}
		w.Header().Add("Vary", "Accept-Encoding") // as the answer with a body has it
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	return h.writeJSON(w, r, http.StatusOK, t)
}

// load reads a task.
func (h *Handler) load(r *http.Request, k ledger.Key) (ledger.Task, error) {
	ctx, cancel := database(r)
	defer cancel()
	return ledger.Load(ctx, h.config.DB, k)
}
