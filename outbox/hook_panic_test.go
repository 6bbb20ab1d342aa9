package outbox_test

import (
	"context"
	"errors"
	"testing"

	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/outbox"
)

// Hooks that panic at each call delay their relay, which begins again, and reports the panic.
func TestHooksThatPanic(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.enqueue("coupon.send", "order-", 10)
	failures := make(chan error, 1)
	b.relay(func(c *outbox.Config) {
		c.Hooks = []outbox.Hook{{
			MessagesPublished: func(context.Context, int) { panic("published") },
			PageAdvanced:      func(context.Context) { panic("advanced") },
			RelayFailed: func(_ context.Context, err error) {
				select {
				case failures <- err:
				default:
				}
			},
		}}
	})
	b.awaitPublished()
	if all := b.check(); len(all) != 10 {
		t.Errorf("%d messages on the stream", len(all))
	}
	var panicked *loop.PanicError
	if err := <-failures; !errors.As(err, &panicked) {
		t.Errorf("the relay failed with %v", err)
	}
}
