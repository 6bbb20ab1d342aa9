package systemtest_test

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/natsconfig"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/outbox"
)

const (
	// forgedEvent is the subject of an event that the ledger does not have.
	forgedEvent = "ledger.7.succeeded.parcel.send"
	// knownInbox is an inbox of the relay whose name has leaked.
	knownInbox = "_INBOX.known.1.0"
	// foreignConsumer is a consumer of the administrator.
	foreignConsumer = "audit"
)

// A user of NATS has no effect on the stream, on the consumers of others or in another's inbox, whether it publishes
// there itself, requests an answer there, or makes a consumer that delivers there.
func TestRolesCannotForgeInNATS(t *testing.T) {
	a := newAttacked(t, func(*server.Options) {})
	a.addConsumer("mails", "")
	a.requestAnswers("mails", api("mails"), a.targets("mails")...)
	a.checkUntouched()
	if got := a.inbox(); got != nil {
		t.Errorf("the relay's inbox got %s: %.100q", got.Subject, got.Data)
	}
	a.checkDirect()
}

// In one account the same rights are not enough: the server stores an answer as an event, and sends it to the relay's
// inbox.
func TestRolesInOneAccountForge(t *testing.T) {
	a := newAttacked(t, func(o *server.Options) {
		i := slices.IndexFunc(o.Accounts, func(a *server.Account) bool { return a.Name == natsconfig.DefaultAccount })
		for _, user := range o.Nkeys {
			user.Account = o.Accounts[i]
			if may := user.Permissions; may != nil && may.Publish != nil {
				for i, subject := range may.Publish.Allow {
					may.Publish.Allow[i] = strings.Replace(subject, api("mails"), "$JS.API.", 1)
				}
			}
		}
	})
	before := a.streamState()
	a.addConsumer("mails", "")
	a.requestAnswers("mails", "$JS.API.", forgedEvent, knownInbox)
	a.await("a forged event", func() bool { return a.streamState() != before })
	a.await("a message in the relay's inbox", func() bool { return a.inbox() != nil })
}

// attacked is a ledger with a relay, tasks, and a consumer that has one of their messages in flight.
type attacked struct {
	*guarded
	admin  jetstream.JetStream
	known  *nats.Subscription
	ack    string // reply subject of the message in flight
	before string
}

func newAttacked(t *testing.T, change func(*server.Options)) *attacked {
	t.Helper()
	a := &attacked{guarded: newGuardedWith(t, change)}
	a.startOn("relay", a.connect("relay"), newGuardedRelay)
	for i := range 5 {
		a.enqueue(parcel, ledger.BizID(fmt.Sprint(i)))
	}
	a.admin = a.jetStream("admin")
	a.await("the stream", func() bool {
		s, err := a.admin.Stream(t.Context(), stream.Name)
		return err == nil && s.CachedInfo().State.Msgs == 5
	})
	consumer, err := a.admin.CreateConsumer(t.Context(), stream.Name, jetstream.ConsumerConfig{
		Durable: foreignConsumer, AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	m, err := consumer.Next()
	if err != nil {
		t.Fatal(err)
	}
	a.ack = m.Reply()
	nc := a.connect("relay")
	if a.known, err = nc.SubscribeSync("_INBOX.known.>"); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil { // the server knows the subscription before anybody publishes
		t.Fatal(err)
	}
	a.before = a.state()
	return a
}

func (g *guarded) jetStream(user string) jetstream.JetStream {
	g.t.Helper()
	js, err := jetstream.New(g.connect(user))
	if err != nil {
		g.t.Fatal(err)
	}
	return js
}

// api returns the prefix of a user's requests to JetStream.
func api(user string) string {
	if user == "mails" {
		return "$JS.mails.API."
	}
	return "$JS.API."
}

// targets returns subjects on which a message would have an effect.
func (a *attacked) targets(user string) []string {
	targets := []string{
		"$JS.API.STREAM.PURGE.LEDGER", "$JS.API.STREAM.DELETE.LEDGER", "$JS.API.CONSUMER.DELETE.LEDGER.audit",
		a.ack, forgedEvent, knownInbox,
	}
	return append(targets, api(user)+"CONSUMER.MSG.NEXT.LEDGER.audit",
		"$JS.API.CONSUMER.MSG.NEXT.LEDGER.audit", api(user)+"STREAM.PURGE.LEDGER")
}

// requestAnswers pulls a message and reads the stream's state, with each of the targets for the answer.
func (a *attacked) requestAnswers(user, api string, targets ...string) {
	a.t.Helper()
	for _, target := range targets {
		nc := a.connect(user) // the server may close it
		for _, subject := range []string{"CONSUMER.MSG.NEXT.LEDGER.mails", "STREAM.INFO.LEDGER"} {
			if err := nc.PublishRequest(api+subject, target, nil); err != nil {
				a.t.Fatal(err)
			}
		}
		_ = nc.Flush()
	}
}

// state returns what no attack may change.
func (a *attacked) state() string {
	a.t.Helper()
	c, err := a.admin.Consumer(a.t.Context(), stream.Name, foreignConsumer)
	if err != nil {
		return err.Error()
	}
	info := c.CachedInfo()
	return fmt.Sprintf("%s; in flight %d, acknowledged %d, delivered %d, waiting %d, filters %v%v", a.streamState(),
		info.NumAckPending, info.AckFloor.Consumer, info.Delivered.Consumer, info.NumWaiting, info.Config.FilterSubject,
		info.Config.FilterSubjects)
}

func (a *attacked) streamState() string {
	a.t.Helper()
	s, err := a.admin.Stream(a.t.Context(), stream.Name)
	if err != nil {
		return err.Error()
	}
	state := s.CachedInfo().State
	return fmt.Sprintf("messages %d, %d to %d", state.Msgs, state.FirstSeq, state.LastSeq)
}

// checkUntouched fails the test if an attack had an effect. An event that is published meanwhile arrives after the
// attacks.
func (a *attacked) checkUntouched() {
	a.t.Helper()
	a.enqueue(parcel, "last")
	var got string
	a.await("the last event", func() bool {
		got = a.streamState()
		return strings.HasSuffix(got, "to 6")
	})
	if got != "messages 6, 1 to 6" {
		a.t.Errorf("the stream has %s", got)
	}
	want := strings.Replace(a.before, "messages 5, 1 to 5", got, 1)
	if got := a.state(); got != want {
		a.t.Errorf("after the attacks: %s, want %s", got, want)
	}
}

// inbox returns a message in the relay's inbox, or nil.
func (a *attacked) inbox() *nats.Msg {
	m, err := a.known.NextMsg(200 * time.Millisecond)
	if err != nil {
		return nil
	}
	return m
}

// checkDirect fails the test unless the server refuses each user to publish, and to read, what is not its own.
func (a *attacked) checkDirect() {
	a.t.Helper()
	create := "$JS.API.CONSUMER.CREATE.LEDGER.audit"
	all := []string{forgedEvent, knownInbox, "$JS.API.STREAM.PURGE.LEDGER", "$JS.API.STREAM.UPDATE.LEDGER",
		"$JS.API.STREAM.CREATE.LEDGER", "$JS.API.STREAM.MSG.DELETE.LEDGER"}
	remove := "$JS.API.STREAM.DELETE.LEDGER" // the operator may: the relay makes the stream anew
	pull := []string{api("mails") + "CONSUMER.MSG.NEXT.LEDGER.audit",
		"$JS.API.CONSUMER.MSG.NEXT.LEDGER.audit", create, create + ".ledger.>", a.ack}
	for user, subjects := range map[string][]string{
		"worker":   append(append(slices.Clone(all), pull...), remove, stream.None.OfferSubject("x")),
		"operator": append(slices.Clone(all), pull...),
		"mails": append(append(slices.Clone(all), pull...), api("mails")+"CONSUMER.CREATE.LEDGER.mails",
			"$JS.API.CONSUMER.DELETE.LEDGER.audit", remove,
			stream.None.ProgressSubject("parcel.send"), stream.None.OfferSubject("x"), stream.None.ReportSubject("x")),
		"relay": append(slices.Clone(pull), remove),
	} {
		for _, subject := range subjects {
			nc := a.connect(user)
			if err := nc.Publish(subject, nil); err != nil {
				a.t.Fatal(err)
			}
			a.awaitRefused(user, subject)
		}
		nc := a.connect(user)
		if _, err := nc.SubscribeSync("ledger.>"); err != nil {
			a.t.Fatal(err)
		}
		a.awaitRefused(user, "ledger.>")
	}
	a.checkInboxes()
	a.checkUntouchedNow()
}

// checkInboxes fails the test if a user can read an inbox of another account.
func (a *attacked) checkInboxes() {
	a.t.Helper()
	var open []*nats.Subscription
	for _, user := range []string{"worker", "operator", "mails"} {
		nc := a.connect(user)
		sub, err := nc.SubscribeSync("_INBOX.>")
		if err == nil {
			err = nc.Flush()
		}
		if err != nil {
			a.t.Fatal(err)
		}
		open = append(open, sub)
	}
	a.enqueue(parcel, "watched") // the relay and this test receive answers
	a.await("the event", func() bool { return strings.HasSuffix(a.streamState(), "to 7") })
	for _, sub := range open {
		if m, err := sub.NextMsg(50 * time.Millisecond); err == nil {
			a.t.Errorf("another account's inbox has %s: %.100q", m.Subject, m.Data)
		}
	}
}

func (a *attacked) checkUntouchedNow() {
	a.t.Helper()
	want := strings.Replace(a.before, "messages 5, 1 to 5", "messages 7, 1 to 7", 1)
	if got := a.state(); got != want {
		a.t.Errorf("after direct attempts: %s, want %s", got, want)
	}
}

// awaitRefused waits until the server has refused a user a subject.
func (a *attacked) awaitRefused(user, subject string) {
	a.t.Helper()
	a.await(fmt.Sprintf("a refusal of %s to %s", subject, user), func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return slices.ContainsFunc(a.refused, func(refused string) bool {
			return strings.HasPrefix(refused, user+": ") && strings.Contains(refused, `"`+subject+`"`)
		})
	})
}

func newGuardedRelay(db *pgxpool.Pool, nc *nats.Conn, log *slog.Logger) (runner, error) {
	return outbox.New(outbox.Config{DB: db, NATS: nc, Logger: log, Stream: room})
}
