package ledger_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"time"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// A task's first event as a row, as JSON, as an ID and as a message.
func Example() {
	ctx := context.Background()
	pool, done := ledgertest.Example()
	defer done()

	type Coupon struct {
		Cents int `json:"cents"`
	}
	sendCoupon := ledger.MustKind[Coupon]("coupon.send")
	if _, err := sendCoupon.Enqueue(ctx, pool, "A-1", Coupon{Cents: 500}, nil); err != nil {
		log.Fatal(err)
	}

	var row string
	err := pool.QueryRow(ctx, `
		select format('(%s, %s, %s): %s, attempt %s, shard %s, data %s',
		              kind, biz_id, version, type, attempt, shard, data)
		  from taskledger.event`).Scan(&row)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("row    ", row)

	history, err := ledger.History(ctx, pool, sendCoupon.Key("A-1"))
	if err != nil {
		log.Fatal(err)
	}
	event := history[0]
	// makes the output constant
	event.RecordedAt, event.Actor, event.Login = time.UnixMicro(1_700_000_000_000_000).UTC(), "shop", "shop"
	text, err := json.Marshal(event)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("JSON   ", string(text))
	fmt.Println("id     ", event.ID())

	payload, err := event.Payload()
	if err != nil {
		log.Fatal(err)
	}
	message := stream.Encode(event, payload, "taskledger/0e8a")
	fmt.Println("subject", message.Subject)
	for _, name := range []string{
		"ce-id", "ce-type", "ce-source", "ce-subject", "ce-time", "ce-task",
	} {
		fmt.Printf("        %s: %s\n", name, message.Header.Get(name))
	}
	fmt.Println("body   ", string(message.Data))
	// Output:
	// row     (coupon.send, A-1, 1): enqueued, attempt 0, shard 2, data {"cents":500}
	// JSON    {"position":1,"kind":"coupon.send","biz_id":"A-1","version":1,"attempt":0,"shard":2,"type":"enqueued","recorded_at":"2023-11-14T22:13:20Z","actor":"shop","login":"shop","data_version":1,"data":{"cents":500}}
	// id      coupon.send/A-1/1@1700000000000000
	// subject ledger.2.enqueued.coupon.send
	//         ce-id: coupon.send/A-1/1@1700000000000000
	//         ce-type: taskledger.enqueued
	//         ce-source: taskledger/0e8a
	//         ce-subject: coupon.send/A-1
	//         ce-time: 2023-11-14T22:13:20Z
	//         ce-task: version=1&attempt=0&position=1
	// body    {"cents":500}
}
