package workers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/taskledger/taskledger/ledger"
)

// maxMessage is how much of an error's message is recorded.
const maxMessage = 4 << 10

// conclude ends an attempt that did not succeed: err is what its handler returned (nil if it
// returned nil too late), cause why its context was cancelled, nil if it was not.
func (k *kind) conclude(a *attempt, cause, err error) {
	ctx, cancel := k.pool.operation()
	defer cancel()
	if err == nil {
		err = cause
	}
	var args *argsError
	var panicked *panicError
	switch {
	case a.lost || errors.Is(cause, ErrFenced):
		k.counts.attempt(OutcomeFenced, a.took())
		k.again(a.held)
	case errors.As(err, &args):
		k.bury(ctx, a, buriedData{Reason: "its args do not decode", Err: args.err})
	case errors.As(err, &panicked):
		k.fail(ctx, a, err)
	case errors.Is(cause, ErrStopping):
		k.interrupt(ctx, a)
	case errors.Is(cause, ErrTimeout):
		k.fail(ctx, a, fmt.Errorf("timed out after %s: %w", k.config.Timeout, err))
	case repeatable(err):
		// The seam for snoozing and permanent errors is here: more ways for a handler to end.
		k.logger.WarnContext(ctx, "attempt will be repeated", "biz_id", string(a.job.BizID), "error", err)
		k.counts.attempt(OutcomeRetried, a.took())
		k.settle(a.held, nakAfter(k.retryDelay(a.held)))
	default:
		k.fail(ctx, a, err)
	}
}

// repeatable reports whether an attempt ended through the ledger's database and not through its
// handler: nobody's fault, and no attempt used. A network error as such proves nothing: it may be
// the partner's who refuses the connection, and that is a failure.
func repeatable(err error) bool {
	var pg *pgconn.PgError
	return errors.Is(err, errConnectionLost) || errors.Is(err, ledger.ErrRetryTransaction) || errors.Is(err, ledger.ErrUnavailable) ||
		errors.As(err, &pg) && ledger.Retryable(err)
}

// interrupt records that the attempt was given back. It is not a failure.
func (k *kind) interrupt(ctx context.Context, a *attempt) {
	data, _ := json.Marshal(struct {
		Reason string `json:"reason"`
		Worker string `json:"worker"`
	}{"shutdown", k.pool.id})
	_, err := ledger.Append(ctx, k.pool.config.DB, a.request(ledger.EventInterrupted, data))
	k.recorded(a, OutcomeInterrupted, err)
}

// fail records a failed attempt, and with it that the task is available again; or that the task
// is buried, if the attempts are used up.
func (k *kind) fail(ctx context.Context, a *attempt, cause error) {
	history, err := ledger.History(ctx, k.pool.config.DB, a.job.Key)
	if err != nil {
		k.recorded(a, OutcomeFailed, err)
		return
	}
	if last := history[len(history)-1]; last.Version != a.version {
		k.recorded(a, OutcomeFailed, &ledger.ConflictError{Key: a.job.Key, Expected: a.version, Found: last.Version, State: last.Type.State()})
		return
	}
	failures := failuresIn(history)
	if len(failures)+1 >= k.config.MaxAttempts {
		failures = append(failures, failure{Attempt: a.job.Attempt, At: time.Now().UTC(), Message: clean(cause.Error(), maxMessage)})
		k.bury(ctx, a, buriedData{Reason: "attempts used up", Err: cause, Errors: failures})
		return
	}
	k.logger.WarnContext(ctx, "attempt failed", "biz_id", string(a.job.BizID), "attempt", int(a.job.Attempt), "error", cause)
	k.recorded(a, OutcomeFailed, a.appendFailure(ctx, cause))
}

// appendFailure appends failed and released in one transaction.
func (a *attempt) appendFailure(ctx context.Context, cause error) error {
	data, err := json.Marshal(failedData{Error: describe(cause), RetryAt: time.Now().UTC(), outcomeData: a.data()})
	if err != nil {
		return err
	}
	p := a.kind.pool
	return pgx.BeginTxFunc(ctx, p.config.DB, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		e, err := ledger.Append(ctx, tx, a.request(ledger.EventFailed, data))
		if err != nil {
			return err
		}
		_, err = ledger.Append(ctx, tx, ledger.AppendRequest{
			Key: a.job.Key, Expected: e.Version, Type: ledger.EventReleased, Actor: p.id, Data: json.RawMessage(`{"reason":"retry"}`),
		})
		return err
	})
}

// outcomeData is what the data of every outcome says.
type outcomeData struct {
	Worker     string    `json:"worker"`
	StartedAt  time.Time `json:"started_at,omitzero"`
	DurationMS float64   `json:"duration_ms"`
}

func (a *attempt) data() outcomeData {
	return outcomeData{Worker: a.kind.pool.id, StartedAt: a.begun.UTC(), DurationMS: float64(a.took().Microseconds()) / 1000}
}

// failedData is the data of a failed event.
type failedData struct {
	Error   errorData `json:"error"`
	RetryAt time.Time `json:"retry_at"`
	outcomeData
}

// buriedData is the data of a buried event.
type buriedData struct {
	Reason string
	Err    error     // nil: none
	Errors []failure // of all attempts, if they were used up
	Lost   int       // workers, if that is the reason
}

func (d buriedData) message() string {
	if d.Err == nil {
		return ""
	}
	return d.Err.Error()
}

func (d buriedData) json(a *attempt) json.RawMessage {
	out := struct {
		Reason string     `json:"reason"`
		Error  *errorData `json:"error,omitempty"`
		Errors []failure  `json:"errors,omitempty"`
		Lost   int        `json:"lost,omitempty"`
		outcomeData
	}{Reason: d.Reason, Errors: d.Errors, Lost: d.Lost, outcomeData: a.data()}
	if d.Err != nil {
		e := describe(d.Err)
		out.Error = &e
	}
	text, err := json.Marshal(out)
	if err != nil {
		return json.RawMessage(`{"reason":"unknown"}`)
	}
	return text
}

// failure is one failed attempt of a task that is buried.
type failure struct {
	Attempt ledger.Attempt `json:"attempt"`
	At      time.Time      `json:"at"`
	Message string         `json:"message"`
}

// failuresIn returns the failed attempts of a task, oldest first.
func failuresIn(history []ledger.Event) []failure {
	var all []failure
	for _, e := range history {
		if e.Type == ledger.EventFailed {
			all = append(all, failure{e.Attempt, e.RecordedAt, clean(ledger.ErrorText(e), maxMessage/8)})
		}
	}
	return all
}

// errorData is an error as events carry it.
type errorData struct {
	Message string `json:"message"`
	Type    string `json:"type"`
	Stack   string `json:"stack,omitempty"` // of a panic
}

func describe(err error) errorData {
	d := errorData{Message: clean(err.Error(), maxMessage), Type: reflect.TypeOf(err).String()}
	var panicked *panicError
	if errors.As(err, &panicked) {
		d.Type, d.Stack = fmt.Sprintf("panic(%T)", panicked.value), clean(string(panicked.stack), maxStack)
	}
	return d
}

// clean makes a text fit for JSON in PostgreSQL: no NUL, valid UTF-8, not too long.
func clean(s string, most int) string {
	if len(s) > most {
		s = s[:most] + "…"
	}
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	return strings.ReplaceAll(s, "\x00", "\uFFFD")
}
