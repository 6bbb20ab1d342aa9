package health_test

import (
	"strings"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/health"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/outbox"
)

// Conditions and cures of a ledger with a prefix name its stream, not that of another ledger in the account.
func TestConditionsOfAPrefix(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.takeLease()
	const prefix = stream.Prefix("shop")
	c := health.Config{JetStream: b.jetStream(prefix.Option())}
	check := func(name health.Name, text, cure string) {
		t.Helper()
		for _, d := range b.read(c).Degraded {
			if d.Name != name {
				continue
			}
			all := d.Text + d.Cure
			if !strings.Contains(d.Text, text) || !strings.Contains(d.Cure, cure) ||
				strings.Contains(strings.ReplaceAll(all, prefix.Stream(), ""), stream.Name) {
				t.Errorf("%s: %s\ncure: %s", name, d.Text, d.Cure)
			}
			return
		}
		t.Errorf("%s does not hold", name)
	}
	check(health.StreamUnavailable, "the state of stream shop_LEDGER: stream not found", "")
	b.createStream(c.JetStream, outbox.StreamConfig{MaxAge: time.Hour})
	c.Stream.MaxAge = 2 * time.Hour
	check(health.StreamDrift, "stream shop_LEDGER differs", "nats stream edit shop_LEDGER,")
}
