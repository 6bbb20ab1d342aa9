package outbox_test

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/stream"
)

// freezeRelay runs a relay process that stops at a crash point, and waits until its lease has ended.
func (b *bundle) freezeRelay(point string, environment ...string) *os.Process {
	b.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), relayDatabase+"="+b.pool.Config().ConnString(), relayNATS+"="+b.server.URL(),
		relayFreeze+"="+point)
	cmd.Env = append(cmd.Env, environment...)
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	b.await("the relay process leads", func() bool { return b.status().Relay != nil && b.status().Relay.Alive })
	b.await("its lease has ended", func() bool { return !b.status().Relay.Alive })
	return cmd.Process
}

// A relay process is stopped while it publishes again what the stream has lost. Another relay does all of that, and no
// new event comes. The process continues, and begins where the other one has ended.
func TestFrozenRelayRepeatsNoRecovery(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	first := b.relay()
	b.enqueue("coupon.send", "order-", 300)
	b.awaitPublished()
	first.end()
	if err := b.js.DeleteStream(b.ctx(), stream.Name); err != nil {
		t.Fatal(err)
	}
	frozen := b.freezeRelay(fault.RelayPage)
	second := b.relay()
	b.awaitPublished()
	second.end()
	before := b.state().LastSeq
	if err := frozen.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	b.enqueue("later.send", "order-", 1)
	b.awaitPublished() // by the process
	if n := b.state().LastSeq - before; n != 1 {
		t.Errorf("%d messages, want 1: the process has published the lost ones again", n)
	}
}
