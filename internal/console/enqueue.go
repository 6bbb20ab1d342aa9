package console

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

	"github.com/taskledger/taskledger/api/client"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/projector"
)

// enqueueData is the content of the page with the form of a new task.
type enqueueData struct {
	Kind, BizID, Args string
	Kinds             []ledger.Kind
	From              string // the task whose args the form has; "": none
	IsHidden          bool   // the args have values that pages hide, so the form has none
	Problem, Cure     string
}

// showEnqueue shows the form of a new task, with the args of a task or of the last one of a kind.
func (h *Handler) showEnqueue(ctx context.Context, r *http.Request, v *view) error {
	q := r.URL.Query()
	d := &enqueueData{Kind: q.Get("kind")}
	v.Data = d
	if !v.CanEnqueue() {
		return &failure{status: http.StatusForbidden, title: "The caller may not enqueue tasks.",
			detail: "the role producer is required", cure: "sign in with a token of the role producer"}
	}
	kinds, err := h.kinds(ctx, v.Caller)
	if err != nil {
		return err
	}
	d.Kinds = kinds[:min(len(kinds), maxKinds)]
	key := ledger.Key{Kind: ledger.Kind(d.Kind), BizID: ledger.BizID(q.Get("from"))}
	if key.Kind == "" {
		return nil
	}
	if err := key.Kind.ValidateStored(); err != nil {
		return err
	}
	if !v.Caller.MayUse(key.Kind) {
		return &failure{status: http.StatusForbidden, title: "The caller is limited to other kinds."}
	}
	if key.BizID == "" {
		last, _, err := projector.ReadTasks(ctx, h.config.DB,
			projector.TaskFilter{Kind: key.Kind, Limit: 1, Walk: walk})
		if err != nil || len(last) == 0 {
			return err
		}
		key = last[0].Key
	} else if err := key.ValidateStored(); err != nil {
		return err
	}
	first, err := ledger.ArgsEvent(ctx, h.config.DB, key)
	if err != nil {
		return err
	}
	d.From = key.String()
	shown := pretty(first.Data, h.config.Hide)
	whole := pretty(first.Data, func(string) bool { return false })
	if d.IsHidden = shown != whole || len(shown) > maxShown; !d.IsHidden {
		d.Args = shown
	}
	return nil
}

// enqueue enqueues the task of the form, by the rules of the API.
func (h *Handler) enqueue(w http.ResponseWriter, r *http.Request) {
	c, isAdmitted := h.admitForm(w, r, "enqueue")
	if !isAdmitted {
		return
	}
	f := r.PostForm
	d := &enqueueData{Kind: strings.TrimSpace(f.Get("kind")), BizID: strings.TrimSpace(f.Get("biz_id")),
		Args: strings.TrimSpace(f.Get("args")), From: f.Get("from")}
	v := h.newView(w, r, c)
	v.Name, v.Title, v.Data = "enqueue", "Enqueue a task", d
	var status int
	switch {
	case d.Args != "" && !json.Valid([]byte(d.Args)):
		status, d.Problem, d.Cure = http.StatusBadRequest, "The args are not JSON.", "Correct them."
	case d.BizID == "":
		status, d.Problem = http.StatusBadRequest, "A biz_id is required."
		d.Cure = "Enter a biz_id that is unique to the task."
	default:
		answer := h.callAPI(r, d)
		if answer.status < http.StatusMultipleChoices {
			ctx, cancel := database(r)
			defer cancel()
			h.awaitLists(ctx)
			key := ledger.Key{Kind: ledger.Kind(d.Kind), BizID: ledger.BizID(d.BizID)}
			text := key.String() + " was enqueued."
			if answer.status != http.StatusCreated {
				text = key.String() + " existed already. Nothing was changed."
			}
			h.setDone(w, r, text)
			http.Redirect(w, r, h.config.Base+string(taskPath(key)), http.StatusSeeOther)
			return
		}
		var p client.Problem
		status, d.Problem, d.Cure = answer.status, "The task was not enqueued.", ""
		if json.Unmarshal(answer.body.Bytes(), &p) == nil {
			d.Problem, d.Cure = strings.TrimSpace(p.Title+": "+p.Detail), p.Cure
		}
	}
	h.renderCounted(w, r, status, "enqueue", v)
}

// callAPI enqueues a task by the HTTP API, whose limits and rights apply.
func (h *Handler) callAPI(r *http.Request, d *enqueueData) *answer {
	body := map[string]any{"kind": d.Kind, "biz_id": d.BizID}
	if d.Args != "" {
		body["args"] = json.RawMessage(d.Args)
	}
	text, err := json.Marshal(body)
	if err != nil { // the args are valid
		return &answer{status: http.StatusInternalServerError}
	}
	inner := h.authorized(r).Clone(r.Context())
	inner.Method, inner.URL, inner.ContentLength = http.MethodPost, &url.URL{Path: "/v1/tasks"}, int64(len(text))
	inner.Header = inner.Header.Clone()
	inner.Header.Set("Content-Type", "application/json")
	inner.Header.Set("Accept", "application/json")
	inner.Body = readCloser{bytes.NewReader(text)}
	a := &answer{header: http.Header{}, status: http.StatusOK}
	h.config.API.ServeHTTP(a, inner)
	return a
}

// readCloser is a body of a request.
type readCloser struct{ *bytes.Reader }

func (readCloser) Close() error { return nil }

// answer records an answer of the API.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header            { return a.header }
func (a *answer) Write(text []byte) (int, error) { return a.body.Write(text) }
func (a *answer) WriteHeader(status int)         { a.status = status }
