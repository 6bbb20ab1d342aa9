package systemtest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/taskledger/taskledger/internal/operator"
	"github.com/taskledger/taskledger/internal/scheduler"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/workers"
)

// varied makes workers whose handler ends as the biz_id of its task demands.
func varied(db *pgxpool.Pool, nc *nats.Conn, log *slog.Logger) (runner, error) {
	p, err := workers.New(workers.Config{DB: db, NATS: nc, Logger: log})
	if err != nil {
		return nil, err
	}
	return p, p.Register(workers.Handle(parcel, func(_ context.Context, job *workers.Job, _ struct{}) error {
		switch job.BizID {
		case "retried":
			if job.Attempt == 1 {
				return workers.RetryIn(time.Millisecond, errors.New("refused"))
			}
		case "panics":
			if job.Attempt == 1 {
				panic("no address")
			}
		case "permanent":
			return workers.Permanent(errors.New("no address"))
		case "discarded":
			return workers.Discard("withdrawn")
		case "snoozed":
			if job.Attempt == 1 {
				return workers.SnoozeFor(time.Millisecond)
			}
		}
		if err := job.Checkpoint(map[string]int{"done": 1}); err != nil {
			return err
		}
		return job.Result(map[string]int{"mail": 7})
	}, &workers.KindConfig{Retry: ledger.RetryPolicy{Ladder: []time.Duration{time.Millisecond}}}))
}

// eventSchemas compiles the schemas of docs/asyncapi.json: "headers", and the payload of each type. Their members are
// all that an event may have here, although subscribers must accept more.
func eventSchemas(t *testing.T) map[string]*jsonschema.Schema {
	t.Helper()
	text, err := os.ReadFile("../../docs/asyncapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var document struct {
		Components struct {
			Messages map[string]struct{ Payload map[string]any }
			Schemas  struct{ Headers map[string]any }
		}
	}
	if err := json.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	schemas := map[string]*jsonschema.Schema{}
	add := func(name string, schema map[string]any) {
		if schema["type"] == "object" {
			schema["additionalProperties"] = false
		}
		c := jsonschema.NewCompiler()
		c.AssertFormat()
		if err := c.AddResource(name, schema); err != nil {
			t.Fatal(err)
		}
		if schemas[name], err = c.Compile(name); err != nil {
			t.Fatal(err)
		}
	}
	add("headers", document.Components.Schemas.Headers)
	for name, message := range document.Components.Messages {
		add(name, message.Payload)
	}
	return schemas
}

// The events of a run, as they are on the stream, have the headers and bodies of docs/asyncapi.json and no other
// members.
func TestEventsHaveTheirSchemas(t *testing.T) {
	t.Parallel()
	schemas := eventSchemas(t)
	d := newDepot(t)
	d.startServing()
	d.start("scheduler", func(db *pgxpool.Pool, _ *nats.Conn, log *slog.Logger) (runner, error) {
		return scheduler.New(scheduler.Config{DB: db, Logger: log})
	})
	for id, options := range map[ledger.BizID]*ledger.EnqueueOptions{
		"plain": nil, "retried": nil, "panics": nil, "permanent": nil, "discarded": nil, "snoozed": nil,
		"delayed":   {RunIn: time.Millisecond},
		"cancelled": {RunIn: time.Hour}, "rescheduled": {RunIn: time.Hour}, "buried": {RunIn: time.Hour},
		"expired": {RunIn: time.Hour, FinishBy: time.Now().Add(3 * time.Second)},
	} {
		if _, err := parcel.Enqueue(t.Context(), d.db, id, struct{}{}, options); err != nil {
			t.Fatalf("%s: %v", id, err)
		}
	}
	o := operator.New(d.pool("operator"))
	audit := operator.Audit{Actor: "alice", Reason: "a test"}
	key := func(id ledger.BizID) ledger.Key { return ledger.Key{Kind: "parcel.send", BizID: id} }
	_, cancelErr := o.Cancel(t.Context(), key("cancelled"), audit)
	_, buryErr := o.Bury(t.Context(), key("buried"), audit)
	_, dueErr := o.Reschedule(t.Context(), key("rescheduled"), ledger.Due{In: time.Millisecond}, audit)
	if err := errors.Join(cancelErr, buryErr, dueErr); err != nil {
		t.Fatal(err)
	}
	d.start("worker", varied)
	const open = `select count(*) from (select distinct on (kind, biz_id) type from taskledger.event
	                order by kind, biz_id, version desc) e
	               where type not in ('succeeded', 'buried', 'cancelled', 'expired', 'discarded')`
	d.await("every task to be finished", func() bool { return d.count(open) == 0 })

	nc, err := outbox.Connect(d.nats.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	consumer, err := js.OrderedConsumer(t.Context(), "LEDGER", jetstream.OrderedConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	bodies := map[string]int{} // with data, by type
	seen := map[string]bool{}
	for n := d.count(`select count(*) from taskledger.event`); len(seen) < n; {
		m, err := consumer.Next(jetstream.FetchMaxWait(patience))
		if err != nil {
			t.Fatalf("%d of %d events: %v", len(seen), n, err)
		}
		headers := map[string]any{}
		for name, values := range m.Headers() {
			headers[name] = values[0]
		}
		id, err := url.PathUnescape(m.Headers().Get("ce-id"))
		if err != nil {
			t.Fatal(err)
		}
		seen[id] = true
		if err := schemas["headers"].Validate(headers); err != nil {
			t.Errorf("headers of %s: %v", id, err)
		}
		name := strings.TrimPrefix(m.Headers().Get("ce-type"), "taskledger.")
		if len(m.Data()) == 0 {
			continue
		}
		bodies[name]++
		body, err := jsonschema.UnmarshalJSON(bytes.NewReader(m.Data()))
		if err == nil {
			err = schemas[name].Validate(body)
		}
		if err != nil {
			t.Errorf("body of %s, %s: %v\n%s", id, name, err, m.Data())
		}
	}
	for _, name := range []string{"enqueued", "scheduled", "progressed", "succeeded", "failed", "buried", "snoozed",
		"cancelled", "discarded", "expired"} {
		if bodies[name] == 0 {
			t.Errorf("no %s event with a body: %v", name, bodies)
		}
	}
}
