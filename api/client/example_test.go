package client_test

import (
	"context"
	"fmt"
	"net/http/httptest"

	"github.com/taskledger/taskledger/api/client"
	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// A program without access to the database enqueues a task and reads it. The handler may be mounted in any server.
func Example() {
	db, done := ledgertest.Example("api", "reader", "producer", "operator")
	defer done()
	ctx := context.Background()
	_, secret, err := api.CreateToken(ctx, db, api.TokenOptions{Name: "shop", Role: api.Producer})
	if err != nil {
		panic(err)
	}
	handler, err := api.New(api.Config{DB: db})
	if err != nil {
		panic(err)
	}
	server := httptest.NewServer(handler)
	defer server.Close()
	defer handler.Drain()

	c, err := client.New(client.Config{URL: server.URL, Token: secret})
	if err != nil {
		panic(err)
	}
	if _, err := client.Enqueue(ctx, c, sendCoupon, "order-17", coupon{Cents: 500}, nil); err != nil {
		panic(err)
	}
	task, err := c.Task(ctx, sendCoupon.Key("order-17"))
	if err != nil {
		panic(err)
	}
	fmt.Println(task, "by", task.Actor)
	// Output: coupon.send/order-17 available, version 1, attempt 0 by shop
}

// A program follows the events of its kinds, also through lost connections. It stores the position of the last event
// that it has handled, to continue there when it starts again.
func ExampleClient_Events() {
	db, done := ledgertest.Example("api", "reader", "producer", "operator")
	defer done()
	ctx := context.Background()
	_, secret, err := api.CreateToken(ctx, db, api.TokenOptions{Name: "shop", Role: api.Producer})
	if err != nil {
		panic(err)
	}
	handler, err := api.New(api.Config{DB: db})
	if err != nil {
		panic(err)
	}
	server := httptest.NewServer(handler)
	defer server.Close()
	defer handler.Drain()
	c, err := client.New(client.Config{URL: server.URL, Token: secret})
	if err != nil {
		panic(err)
	}
	for _, id := range []ledger.BizID{"order-17", "order-18"} {
		if _, err := client.Enqueue(ctx, c, sendCoupon, id, coupon{Cents: 500}, nil); err != nil {
			panic(err)
		}
	}

	var stored ledger.Position // 0: from the beginning
	for e, err := range c.Events(ctx, &client.EventOptions{StartAfter: &stored, Kinds: []string{"coupon.*"}}) {
		if err != nil {
			panic(err)
		}
		fmt.Println(e.Kind, e.BizID, e.Type, string(e.Data))
		if stored = e.Position; e.BizID == "order-18" {
			break
		}
	}
	// Output:
	// coupon.send order-17 enqueued {"cents":500}
	// coupon.send order-18 enqueued {"cents":500}
}
