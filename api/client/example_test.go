package client_test

import (
	"context"
	"fmt"
	"net/http/httptest"

	"github.com/taskledger/taskledger/api"
	"github.com/taskledger/taskledger/api/client"
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
