package api

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/taskledger/taskledger/internal/reserved"
	"github.com/taskledger/taskledger/internal/wire"
	"github.com/taskledger/taskledger/ledger"
)

func unescape(segment string) (string, error) {
	text, err := url.PathUnescape(segment)
	if err != nil {
		return "", invalid("path", "must be percent-encoded")
	}
	return text, nil
}

// cancelTask cancels a task.
func (h *Handler) cancelTask(w http.ResponseWriter, r *http.Request, c *caller) error {
	q := parseQuery(r, "reason")
	if q.err != nil {
		return q.err
	}
	k, err := key(r, c, r.PathValue("biz_id"))
	if err != nil {
		return err
	}
	return h.change(w, r, c, k, "cancel", wire.Change{Reason: q.values.Get("reason")})
}

// changeTask releases, reschedules or buries a task.
func (h *Handler) changeTask(w http.ResponseWriter, r *http.Request, c *caller) error {
	if err := parseQuery(r).err; err != nil {
		return err
	}
	bizID, name, err := splitChange(r, "release", "reschedule", "bury", "cancel")
	if err != nil {
		return err
	}
	k, err := key(r, c, bizID)
	if err != nil {
		return err
	}
	var change wire.Change
	if err := h.decode(w, r, maxBodyBytes, name != "reschedule", &change); err != nil {
		return err
	}
	if name != "reschedule" && (!change.At.IsZero() || change.In != 0 || change.Priority != 0) {
		return invalid("at", "in and priority belong to reschedule alone")
	}
	return h.change(w, r, c, k, name, change)
}

// change changes a task and answers with the task.
func (h *Handler) change(
	w http.ResponseWriter, r *http.Request, c *caller, k ledger.Key, name string, change wire.Change,
) error {
	if reserved.IsKind(k.Kind) && !c.role.has(Admin) {
		return problem(codeForbidden, "only the role admin may change tasks of taskledger itself")
	}
	ctx, cancel := database(r)
	defer cancel()
	o := ledger.ChangeOptions{Actor: c.name, Reason: change.Reason}
	for conflicts := 0; ; conflicts++ {
		isConditional, err := h.conditional(r, k, &o)
		if err == nil {
			err = h.changeOne(ctx, k, name, change, &o)
		}
		var conflict *ledger.ConflictError
		if isMoved := errors.As(err, &conflict) && isConditional; isMoved && conflicts < maxConflicts {
			continue // the preconditions decide about the new version
		}
		if err != nil {
			return err
		}
		break
	}
	t, err := h.load(r, k)
	if err != nil {
		return err
	}
	setVersion(w, t.Version)
	return h.writeJSON(w, r, http.StatusOK, t)
}

// maxConflicts is how often a task may change between the check of the preconditions and the append.
const maxConflicts = 20

// conditional reports whether a request has preconditions. Then it sets o.IfVersion: the request changes the task only
// at the version that meets them now.
func (h *Handler) conditional(r *http.Request, k ledger.Key, o *ledger.ChangeOptions) (bool, error) {
	p, err := parsePreconditions(r)
	if err != nil || p.match == nil && p.noneMatch == nil {
		return false, err
	}
	t, err := h.load(r, k)
	if err == nil {
		err = p.check(t, false)
	}
	o.IfVersion = t.Version
	return true, err
}

// changeOne changes a task.
func (h *Handler) changeOne(
	ctx context.Context, k ledger.Key, name string, change wire.Change, o *ledger.ChangeOptions,
) (err error) {
	switch name {
	case "cancel":
		_, err = ledger.Cancel(ctx, h.config.DB, k, o)
	case "release":
		_, err = ledger.Release(ctx, h.config.DB, k, o)
	case "bury":
		_, err = ledger.Bury(ctx, h.config.DB, k, o)
	case "reschedule":
		due := ledger.Due{At: change.At, Priority: change.Priority}
		if due.In, err = seconds("in", change.In); err == nil {
			_, err = ledger.Reschedule(ctx, h.config.DB, k, due, o)
		}
	}
	return err
}

// changeKind pauses or resumes a kind.
func (h *Handler) changeKind(w http.ResponseWriter, r *http.Request, c *caller) error {
	if err := errors.Join(parseQuery(r).err, refusePreconditions(r)); err != nil {
		return err
	}
	name, change, err := splitChange(r, "pause", "resume")
	if err != nil {
		return err
	}
	kind := ledger.Kind(name)
	if err := kind.Validate(); err != nil {
		return err
	}
	if !c.mayUse(kind) {
		return c.refuseKind(kind)
	}
	var body struct {
		Reason string `json:"reason"`
	}
	if err := h.decode(w, r, maxBodyBytes, true, &body); err != nil {
		return err
	}
	ctx, cancel := database(r)
	defer cancel()
	answer := struct {
		Kind    ledger.Kind `json:"kind"`
		Paused  bool        `json:"paused"`
		Changed bool        `json:"changed"` // false: it was so before
	}{Kind: kind, Paused: change == "pause"}
	answer.Changed, err = h.PauseKind(ctx, Caller{c}, kind, answer.Paused, body.Reason)
	if err != nil {
		return err
	}
	return h.writeJSON(w, r, http.StatusOK, answer)
}

// splitChange returns the parts of the last segment of a path: a name, and the change after the last colon that is not
// escaped.
func splitChange(r *http.Request, changes ...string) (name, change string, err error) {
	path := r.URL.EscapedPath()
	segment := path[strings.LastIndexByte(path, '/')+1:]
	colon := strings.LastIndexByte(segment, ':')
	if colon >= 0 {
		change = segment[colon+1:]
	}
	if !slices.Contains(changes, change) {
		p := problem(codeNotFound, "the path must end with one of :"+strings.Join(changes, ", :"))
		return "", "", p
	}
	name, err = unescape(segment[:colon])
	return name, change, err
}
