package webhooks_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/taskledger/taskledger/internal/dispatcher"
	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/internal/webhooks"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/webhook"
)

// A program sends the events of one kind to an HTTP server. Relay and dispatcher are those of taskledger serve;
// here the program runs its own.
func ExampleNew() {
	db, done := ledgertest.Example(ledgertest.App, "subscriber", "relay")
	defer done()
	tb, cleanUp := ledgertest.ExampleTB()
	defer cleanUp()
	dir := tb.TempDir()
	server, err := natsserver.Start(natsserver.Config{Dir: filepath.Join(dir, "nats")})
	check(err)
	defer func() { check(server.Close()) }()
	nc, err := outbox.Connect(server.URL())
	check(err)
	defer nc.Close()
	relay, err := outbox.New(outbox.Config{DB: db, NATS: nc})
	check(err)
	gives, err := dispatcher.New(dispatcher.Config{DB: db, NATS: nc})
	check(err)

	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 3)
	received := make(chan string, 10)
	const signingKey = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	shop := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		if _, err := webhook.Verify(r.Header, body, signingKey); err != nil {
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		received <- fmt.Sprintln(r.Method, r.URL.Path, "verified")
	}))
	defer shop.Close()

	secret := filepath.Join(dir, "secret")
	check(os.WriteFile(secret, []byte(signingKey), 0o600))
	service, err := webhooks.New(webhooks.Config{DB: db, NATS: nc, File: webhooks.File{Receivers: []webhooks.Receiver{{
		Name: "shop",
		Endpoint: webhooks.Endpoint{
			URL: shop.URL + "/hooks", SecretFile: secret,
			Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, // this server is on the same machine
		},
		Kinds: []ledger.Kind{"coupon.send"}, Types: []ledger.EventType{ledger.EventEnqueued},
		FromBeginning: true,
	}}}})
	check(err)
	_, err = ledger.Enqueue(ctx, db, ledger.Key{Kind: "coupon.send", BizID: "order-17"}, nil, nil)
	check(err)
	go func() { ended <- relay.Run(ctx) }()
	go func() { ended <- gives.Run(ctx) }()
	go func() { ended <- service.Run(ctx) }()
	fmt.Print(<-received)
	stop()
	check(<-ended)
	check(<-ended)
	check(<-ended)
	// Output: POST /hooks verified
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
