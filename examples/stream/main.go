// Command stream prints the results of coupon.send with nats.go alone, and continues after the last acknowledged event.
// NATS_URL is what taskledger url nats subscriber prints.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/url"
	"os"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func main() {
	nc, err := nats.Connect(os.Getenv("NATS_URL")) // taskledger url nats subscriber
	if err != nil {
		log.Fatal(err)
	}
	js, err := jetstream.NewWithDomain(nc, "subscriber")
	if err != nil {
		log.Fatal(err)
	}
	consumer, err := js.Consumer(context.Background(), "LEDGER", "subscriber")
	if err != nil {
		log.Fatal(err)
	}
	messages, err := consumer.Messages()
	if err != nil {
		log.Fatal(err)
	}
	for {
		m, err := messages.Next()
		if err != nil {
			log.Fatal(err)
		}
		key, err := url.PathUnescape(m.Headers().Get("ce-subject"))
		if err != nil {
			log.Fatal(err)
		}
		task, err := url.ParseQuery(m.Headers().Get("ce-task"))
		if err != nil {
			log.Fatal(err)
		}
		var data struct {
			Result struct{ Mail int }
		}
		if err := json.Unmarshal(m.Data(), &data); err != nil {
			log.Fatal(err)
		}
		_, _ = fmt.Fprintln(os.Stdout, key, task.Get("version"), data.Result.Mail)
		if err := m.Ack(); err != nil { // after the effect
			log.Fatal(err)
		}
	}
}
