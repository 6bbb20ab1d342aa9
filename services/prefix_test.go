package services_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger"
	"github.com/taskledger/taskledger/internal/natsconfig"
	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/internal/relays"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/services"
)

// Two ledgers share an account of NATS, each with a prefix. Each worker and each wait gets the tasks of its ledger,
// each relay has a stream of its own ledger's events, and each message is below one of the prefixes.
func TestPrefixesOfOneAccount(t *testing.T) {
	t.Parallel()
	prefixes := []stream.Prefix{"shop", "shop-1"}
	urls := startShared(t, prefixes)
	nc, err := outbox.Connect(urls[natsconfig.Admin])
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	all, err := nc.SubscribeSync(">")
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	const tasks = 20
	checked := make(chan error, len(prefixes))
	var both []*embedding
	var greetings []chan string
	for _, p := range prefixes {
		db := ledgertest.Pool(t, ledgertest.Owner)
		work, greeted := greeter()
		greetings = append(greetings, greeted)
		both = append(both, embed(t, services.EmbedOptions{Client: taskledger.Options{
			DatabaseURL: db.Config().ConnString(), NATSURL: urls[string(p)+"-"+natsconfig.Worker],
			NATSPrefix: string(p),
		}, Services: services.Config{
			NATS: services.ToNATS(urls[string(p)+"-"+natsconfig.Relay], outbox.NATSPrefix(string(p))),
		}}, func(ctx context.Context, client *taskledger.Client) error {
			var keys []ledger.Key
			for n := range tasks {
				id := ledger.BizID(fmt.Sprint("order-", n))
				if _, err := greet.Enqueue(ctx, client.DB, id, string(p), nil); err != nil {
					return err
				}
				keys = append(keys, greet.Key(id))
			}
			go func() {
				_, err := ledger.WaitMany(ctx, client, keys, ledger.UntilAll)
				id, readErr := relays.Installation(ctx, client.DB)
				checked <- errors.Join(err, readErr, checkStream(ctx, js, p.Stream(), stream.Source(id), 2*tasks))
			}()
			return work(ctx, client)
		}))
	}
	for i, e := range both {
		select {
		case err := <-checked:
			if err != nil {
				t.Error(err)
			}
		case err := <-e.ended:
			t.Fatalf("Embed has returned: %v\n%s", err, &e.log)
		}
		for range tasks {
			if name := <-greetings[i]; name != string(prefixes[i]) {
				t.Errorf("the worker of %s has a task of %s", prefixes[i], name)
			}
		}
	}
	for _, e := range both {
		e.end(t)
	}
	seen := make(map[string]bool) // the first two words of subjects
	for m, err := all.NextMsg(1); err == nil; m, err = all.NextMsg(1) {
		words := strings.SplitN(m.Subject, ".", 3)
		if strings.HasPrefix(words[0], "$") || strings.HasPrefix(words[0], "_INBOX") {
			continue
		}
		seen[strings.Join(words[:2], ".")] = true
		if !slices.Contains(prefixes, stream.Prefix(words[0])) {
			t.Errorf("a message on %s is outside of the prefixes", m.Subject)
		}
	}
	for _, p := range prefixes {
		for _, about := range []string{"ledger", "taskledger"} {
			if !seen[string(p)+"."+about] {
				t.Errorf("no message on %s.%s.>", p, about)
			}
		}
	}
}

// startShared starts a server whose accounts the ledgers with these prefixes share. It returns its address for each
// user.
func startShared(t *testing.T, prefixes []stream.Prefix) map[string]string {
	t.Helper()
	var c natsconfig.Config
	for _, p := range prefixes {
		c.Prefixes = append(c.Prefixes, string(p))
	}
	passwords := make(natsconfig.Passwords)
	for _, user := range c.Users() {
		passwords[user] = "of " + user
	}
	c.Credential = passwords.Credential
	server, err := natsserver.Start(natsserver.Config{Dir: t.TempDir(), Accounts: c.AccountsText()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	address, err := url.Parse(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	return passwords.URLs(address.Host)
}

// The users of a ledger reach the subjects of their prefix, and none of another prefix.
func TestPrefixesAreRights(t *testing.T) {
	t.Parallel()
	prefixes := []stream.Prefix{"shop", "shop-1"}
	urls := startShared(t, prefixes)
	for _, user := range []string{natsconfig.Relay, natsconfig.Worker, natsconfig.Operator, natsconfig.Waiter} {
		nc, err := outbox.Connect(urls["shop-"+user], outbox.NATSPrefix("shop"),
			nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		mayReach := 0
		for _, p := range prefixes {
			outcome := p.OutcomeSubjects()[0]
			for _, subject := range []string{
				p.Copies(), p.Wake(), p.AllReports(), p.OfferSubject("*"), p.ProgressSubject(">"), outcome, p.Inboxes(),
			} {
				_, err := nc.SubscribeSync(subject)
				if isReached(t, nc, err, subject) {
					mayReach++
				}
			}
			for _, subject := range []string{
				p.Copies(), p.Wake(), p.ReportSubject("s"), p.OfferSubject("s"), p.Pattern("1", "succeeded", "greet"),
				p.CheckpointSubject("checkpoint.c"), "$JS.API.STREAM.INFO." + p.Stream(),
				"$JS.API.STREAM.DELETE." + p.Stream(),
			} {
				if isReached(t, nc, nc.PublishRequest(subject, "nowhere", nil), subject) {
					mayReach++
				}
			}
			switch {
			case p == "shop" && mayReach == 0:
				t.Errorf("the user %s reaches nothing of its ledger", user)
			case p == "shop":
				mayReach = 0
			case mayReach > 0:
				t.Errorf("the user %s reaches %d subjects of another ledger", user, mayReach)
			}
		}
	}
}

// isReached reports whether the server has permitted what nc did last, on this subject. err is its error.
func isReached(t *testing.T, nc *nats.Conn, err error, subject string) bool {
	t.Helper()
	if err = errors.Join(err, nc.Flush()); err != nil {
		t.Fatal(err)
	}
	last := nc.LastError()
	return last == nil || !strings.Contains(last.Error(), strconv.Quote(subject))
}

// checkStream waits until a stream has this many messages, and returns an error unless all are of one ledger.
func checkStream(ctx context.Context, js jetstream.JetStream, name, source string, messages int) error {
	consumer, err := js.OrderedConsumer(ctx, name, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return err
	}
	received, err := consumer.Messages()
	if err != nil {
		return err
	}
	defer received.Stop()
	for range messages {
		m, err := received.Next(jetstream.NextContext(ctx))
		if err != nil {
			return err
		}
		if got := m.Headers().Get("ce-source"); got != source {
			return fmt.Errorf("a message on %s of stream %s is from %s, not %s", m.Subject(), name, got, source)
		}
	}
	return nil
}
