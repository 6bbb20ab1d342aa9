package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/taskledger/taskledger/api/client"
	"github.com/taskledger/taskledger/internal/archive"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/internal/subscribers"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/periodic"
	"github.com/taskledger/taskledger/outbox"
)

// code is the stable name of a problem. Each is documented in docs/http.md.
type code string

const (
	codeInvalid         code = "invalid"
	codeUnauthenticated code = "unauthenticated"
	codeForbidden       code = "forbidden"
	codeKindForbidden   code = "kind_forbidden"
	codeCrossOrigin     code = "cross_origin"
	codeDatabaseRights  code = "database_rights"
	codeNotFound        code = "not_found"
	codeUnknownTask     code = "unknown_task"
	codeMethod          code = "method_not_allowed"
	codeSlow            code = "request_too_slow"
	codeOtherArgs       code = "other_args"
	codeState           code = "state"
	codeConflict        code = "conflict"
	codeAttemptEnded    code = "attempt_ended"
	codeGuarantee       code = "guarantee"
	codeGone            code = "cursor_gone"
	codePrecondition    code = "precondition"
	codeTooLarge        code = "too_large"
	codeMediaType       code = "media_type"
	codeOverloaded      code = "overloaded"
	codeRate            code = "rate"
	codeInternal        code = "internal"
	codeWorkOff         code = "work_off"
	codeUnavailable     code = "unavailable"
	codeWaiting         code = "too_many_waiting"
	codeShutdown        code = "shutdown"
)

// problems maps each code to its status, title and cure.
var problems = map[code]struct {
	status      int
	title, cure string
}{
	codeInvalid: {
		status: http.StatusBadRequest, title: "The request is invalid.",
		cure: "correct the named field",
	},
	codeUnauthenticated: {
		status: http.StatusUnauthorized, title: "The caller is unknown.",
		cure: "send Authorization: Bearer with a valid token; an operator makes one with: taskledger create token",
	},
	codeForbidden: {
		status: http.StatusForbidden, title: "The caller's role does not allow the request.",
		cure: "use a token of the named role",
	},
	codeKindForbidden: {
		status: http.StatusForbidden, title: "The caller is limited to other kinds.",
		cure: "use a token for the kind",
	},
	codeCrossOrigin: {
		status: http.StatusForbidden, title: "A page of another origin may not change anything.",
		cure: "call the API from a server, or from a page of the same origin",
	},
	codeDatabaseRights: {
		status: http.StatusForbidden, title: "The database refuses the API.",
		cure: "grant the login of the API the role api, and the call's role: reader, producer, worker or operator",
	},
	codeNotFound: {
		status: http.StatusNotFound, title: "There is no such resource.",
		cure: "see GET /v1/openapi.yaml for the paths; a slash within a biz_id is written %2F",
	},
	codeUnknownTask: {
		status: http.StatusNotFound, title: "There is no such task.",
		cure: "check kind and biz_id; both are percent-encoded in the path",
	},
	codeMethod: {
		status: http.StatusMethodNotAllowed, title: "The resource does not have this method.",
		cure: "use one of the methods in the header Allow",
	},
	codeSlow: {
		status: http.StatusRequestTimeout, title: "The request came too slowly.",
		cure: "send the whole request within 15 seconds",
	},
	codeOtherArgs: {
		status: http.StatusConflict, title: "The task exists with other args.",
		cure: "use another biz_id, or send args that are equal as JSON values",
	},
	codeState: {
		status: http.StatusConflict, title: "The state of the task does not allow the change.",
		cure: "read the task, and decide again",
	},
	codeConflict: {
		status: http.StatusConflict, title: "The task was changed at the same time.",
		cure: "send the request again",
	},
	codeAttemptEnded: {
		status: http.StatusConflict, title: "The attempt has ended otherwise.",
		cure: "drop the task: another worker has it, or its outcome is recorded; history has its events",
	},
	codeGuarantee: {
		status: http.StatusConflict, title: "Another worker of the kind has another guarantee.",
		cure: "ask with the guarantee of the kind's other workers, or stop these first",
	},
	codeGone: {
		status: http.StatusGone, title: "The cursor is not one of this database as it is now.",
		cure: "begin again with after=POSITION, the position of the last event that was read and still exists",
	},
	codePrecondition: {
		status: http.StatusPreconditionFailed, title: "The task has another version than the request names.",
		cure: "read the task, and decide again; its strong ETag, without W/, is the version",
	},
	codeTooLarge: {
		status: http.StatusRequestEntityTooLarge, title: "The request is too large.",
		cure: "send at most the named number of bytes",
	},
	codeMediaType: {
		status: http.StatusUnsupportedMediaType, title: "The body has another type.",
		cure: "send Content-Type: application/json, uncompressed or with Content-Encoding: gzip",
	},
	codeOverloaded: {
		status: http.StatusTooManyRequests, title: "The limit of the kind is reached.",
		cure: "wait for Retry-After, and send the request again",
	},
	codeRate: {
		status: http.StatusTooManyRequests, title: "The caller sends too many requests.",
		cure: "wait for Retry-After; an operator sets the rate with: taskledger create token --rate",
	},
	codeInternal: {
		status: http.StatusInternalServerError, title: "The server failed.",
		cure: "see the log of the server",
	},
	codeWorkOff: {
		status: http.StatusNotFound, title: "The server gives out no work.",
		cure: "ask a process of taskledger serve, or set Config.Work of package api",
	},
	codeUnavailable: {
		status: http.StatusServiceUnavailable, title: "The database is unavailable.",
		cure: "wait for Retry-After, and send the request again",
	},
	codeWaiting: {
		status: http.StatusServiceUnavailable, title: "Too many requests wait.",
		cure: "wait for Retry-After, or poll without waiting",
	},
	codeShutdown: {
		status: http.StatusServiceUnavailable, title: "The server shuts down.",
		cure: "send the request again; another process answers it",
	},
}

// docs is the document of the problems.
const docs = "https://github.com/taskledger/taskledger/blob/main/docs/http.md#"

// problem returns the problem of a code.
func problem(c code, detail string) *client.Problem {
	p := problems[c]
	answer := &client.Problem{Type: docs + string(c), Code: string(c), Title: p.title, Status: p.status, Detail: detail,
		Cure: p.cure}
	if p.status == http.StatusServiceUnavailable {
		answer.RetryAfter = 1
	}
	return answer
}

// invalid returns the problem of an invalid field.
func invalid(field, format string, a ...any) *client.Problem {
	p := problem(codeInvalid, "invalid "+field+": "+fmt.Sprintf(format, a...))
	p.Field = field
	return p
}

// describe returns the problem that an error means. It returns false if the error is a failure of the server.
func describe(err error) (p *client.Problem, expected bool) {
	var (
		known      *client.Problem
		field      *ledger.InvalidError
		transition *ledger.TransitionError
		conflict   *ledger.ConflictError
		overload   *ledger.OverloadError
		archived   *ledger.ArchivedError
		unreadable *archive.UnreadableError
		tooLarge   *http.MaxBytesError
	)
	switch {
	case errors.As(err, &known):
		return known, true
	case errors.As(err, &field):
		p = problem(codeInvalid, printable.Text(err.Error()))
		p.Field = field.Field
		return p, true
	case errors.As(err, &transition):
		p = problem(codeState, printable.Text(transition.Error()))
		p.State = transition.State
		return p, true
	case errors.As(err, &conflict):
		p = problem(codeConflict, printable.Text(conflict.Error()))
		p.State, p.Version = conflict.State, conflict.Found
		return p, true
	case errors.As(err, &overload):
		p = problem(codeOverloaded, overload.Error())
		p.RetryAfter = max(1, int(math.Ceil(overload.RetryAfter.Seconds())))
		return p, true
	case errors.As(err, &tooLarge):
		return problem(codeTooLarge, fmt.Sprintf("the body has more than %d bytes", tooLarge.Limit)), true
	case errors.As(err, &unreadable):
		p = problem(codeUnavailable, printable.Text(err.Error()))
		p.Title = "The archive of the task cannot be read."
		p.Cure = "mount the archive where serve runs, or name its new place: serve --archive-to"
		return p, false
	case errors.As(err, &archived):
		p = problem(codeUnknownTask, printable.Text(err.Error()))
		p.Cure = "read its events there; if_exists rerun runs it again"
		return p, true
	case errors.Is(err, ledger.ErrUnknownTask):
		return problem(codeUnknownTask, printable.Text(err.Error())), true
	case errors.Is(err, ledger.ErrUnknownPosition):
		p = invalid("position", "%s", err)
		p.Cure = "use the position of an event, which has not been archived; or 0 for the first one"
		return p, true
	case errors.Is(err, periodic.ErrUnknownSchedule), errors.Is(err, outbox.ErrUnknownSubscriber):
		return problem(codeNotFound, printable.Text(err.Error())), true
	case errors.Is(err, subscribers.ErrBusy):
		return problem(codeUnavailable, printable.Text(subscribers.ErrBusy.Error())), true
	case errors.Is(err, ledger.ErrNotMigrated):
		p = problem(codeUnavailable, "the database is not migrated")
		p.Cure = "run: taskledger migrate up"
		return p, false
	case pgerr.Is(err, pgerr.InsufficientPrivilege):
		return problem(codeDatabaseRights, "the login of the API lacks a right: "+databaseMessage(err)), false
	case isErased(err):
		return problem(codeState, databaseMessage(err)+": enqueue it again with args and if_exists rerun"), true
	case ledger.Retryable(err), errors.Is(err, ledger.ErrUnavailable), errors.Is(err, context.DeadlineExceeded),
		pgerr.Class(err) == pgerr.ClassInsufficientResources, pgerr.Is(err, pgerr.QueryCanceled):
		return problem(codeUnavailable, "the database does not answer"), false
	}
	return problem(codeInternal, "the request failed"), false
}

// isErased reports whether a change failed because the args of the task are erased.
func isErased(err error) bool {
	return pgerr.Is(err, pgerr.ObjectNotInPrerequisiteState) &&
		strings.HasPrefix(databaseMessage(err), "taskledger: task ")
}

// databaseMessage returns the message of PostgreSQL in an error.
func databaseMessage(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return printable.Text(pg.Message)
	}
	return ""
}

// fail answers a request with the problem of an error.
func (h *Handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil && errors.Is(err, context.Canceled) {
		return // the client has gone
	}
	p, expected := describe(err)
	if !expected {
		h.config.Logger.ErrorContext(r.Context(), "request failed", "method", r.Method, "code", p.Code, "error", err)
	}
	h.writeProblem(w, r, p)
}

// writeProblem answers a request with a problem.
func (h *Handler) writeProblem(w http.ResponseWriter, r *http.Request, p *client.Problem) {
	if p.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(p.RetryAfter))
	}
	if p.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="taskledger"`)
	}
	if p.Status == http.StatusPreconditionFailed {
		setVersion(w, p.Version)
	}
	body, err := json.Marshal(p)
	if err != nil { // strings and numbers always marshal
		panic(err)
	}
	h.write(w, r, p.Status, "application/problem+json", append(body, '\n'))
}

// retryIn returns p with the time after which the request may succeed.
func retryIn(p *client.Problem, d time.Duration) *client.Problem {
	p.RetryAfter = max(1, int(math.Ceil(d.Seconds())))
	return p
}
