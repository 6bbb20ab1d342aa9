package stream_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

func TestPrefixIsValid(t *testing.T) {
	t.Parallel()
	longest := strings.Repeat("a", 32)
	for _, p := range []stream.Prefix{"", "shop", "a", "eu-1_shop", stream.Prefix(longest), "ledgers"} {
		if err := p.Validate(); err != nil {
			t.Errorf("%q: %v", p, err)
		}
	}
	for _, p := range []stream.Prefix{"Shop", "1shop", "-shop", "a.b", "a*", ">", "$JS", "_INBOX", "a b", "ä", "a\n",
		stream.Prefix(longest + "a"), "ledger", "taskledger", "subscriber", "replay", "checkpoint"} {
		if err := p.Validate(); !isInvalid(err) {
			t.Errorf("%q: %v", p, err)
		}
		if _, err := stream.Connect("nats://localhost:1", p.Option()); !isInvalid(err) {
			t.Errorf("connect with %q: %v", p, err)
		}
	}
}

// A connection has the prefix of its option. Other prefixes of inboxes do not count.
func TestPrefixOfConnection(t *testing.T) {
	t.Parallel()
	for want, option := range map[stream.Prefix]nats.Option{
		"":     nats.CustomInboxPrefix("_INBOX_mine"),
		"shop": stream.Prefix("shop").Option(),
	} {
		nc, err := stream.Connect("nats://localhost:1", option)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		if got := stream.PrefixOf(nc); got != want {
			t.Errorf("the connection has the prefix %q, not %q", got, want)
		}
		if inbox := nc.NewInbox(); want != "" && !strings.HasPrefix(inbox, strings.TrimSuffix(want.Inboxes(), ">")) {
			t.Errorf("inbox %s is not in %s", inbox, want.Inboxes())
		}
	}
	if got := stream.PrefixOf(nil); got != stream.None {
		t.Errorf("no connection has the prefix %q", got)
	}
}

// No subject and no stream of a ledger is a subject or stream of a ledger with another prefix, even if one prefix
// begins another.
func TestPrefixesSeparate(t *testing.T) {
	t.Parallel()
	prefixes := []stream.Prefix{"", "shop", "shop-1", "subscriber_x"}
	for _, p := range prefixes {
		for _, subject := range subjectsOf(p) {
			for _, other := range prefixes {
				if got := matches(subject, filtersOf(other)); got != (other == p) {
					t.Errorf("%s of %q matches filters of %q: %t", subject, p, other, got)
				}
			}
		}
		event := stream.Subject(7, ledger.EventSucceeded, "coupon.send")
		if p != "" {
			event = string(p) + "." + event
		}
		m, _ := p.EncodeWhole(ledger.Event{Key: ledger.Key{Kind: "coupon.send", BizID: "A-1"}, Version: 2, Shard: 7,
			Type: ledger.EventSucceeded}, nil, nil, "taskledger/i")
		if m.Subject != event {
			t.Errorf("the event of %q is on %s, not on %s", p, m.Subject, event)
		}
		shard, _, kind, err := stream.ParseSubject(m.Subject)
		if err != nil || shard != 7 || kind != "coupon.send" {
			t.Errorf("%s: shard %d, kind %s: %v", m.Subject, shard, kind, err)
		}
	}
	names := make(map[string]stream.Prefix)
	for _, p := range prefixes {
		for _, name := range []string{p.Stream(), p.ServedStream("x"), p.ServedStream("LEDGER")} {
			if other, exists := names[name]; exists {
				t.Errorf("stream %s belongs to %q and %q", name, other, p)
			}
			names[name] = p
		}
	}
}

func subjectsOf(p stream.Prefix) []string {
	event := p.Pattern("7", "succeeded", "coupon.send")
	return []string{p.Copies(), p.Wake(), p.ReportSubject("s"), p.OfferSubject("s"), p.ProgressSubject("coupon.send"),
		event, p.ServedSubject("mails", event)}
}

func filtersOf(p stream.Prefix) []string {
	return append(p.OutcomeSubjects(), p.AllSubjects(), p.Copies(), p.Wake(), p.AllReports(), p.OfferSubject("*"),
		p.ProgressSubject(">"), p.ServedSubject("mails", p.AllSubjects()))
}

func isInvalid(err error) bool {
	_, ok := errors.AsType[*ledger.InvalidError](err)
	return ok
}
