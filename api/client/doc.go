// Package client calls the HTTP API of taskledger, for programs without access to the database.
//
//	c, err := client.New(client.Config{URL: "https://tasks.example.com", Token: os.Getenv("TASKLEDGER_TOKEN")})
//	_, err = client.Enqueue(ctx, c, SendCoupon, "order-17", Coupon{Cents: 500}, nil)
//	task, err := c.Wait(ctx, SendCoupon.Key("order-17"))
//	result, err := ledger.ResultOf[Code](task) // a *ledger.TaskError unless the task has succeeded
//	for event, err := range c.Events(ctx, nil) { … }
//
// Requests are retried after lost connections and after answers that ask for it. That is safe, because the key of a
// task makes an enqueue idempotent, and a change that was already made is refused.
//
// The types of this package are the types that the API sends and receives: docs/http.md describes them.
package client
