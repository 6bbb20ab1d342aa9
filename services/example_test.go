package services_test

import (
	"context"
	"log"
	"net"

	"github.com/taskledger/taskledger"
	"github.com/taskledger/taskledger/services"
)

// A program that embeds the services. The login of DB needs the role relay.
func ExampleRun() {
	ctx := context.Background()
	client, err := taskledger.Open(ctx, taskledger.Options{})
	check(err)
	defer client.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:8080")
	check(err)
	check(services.Run(ctx, services.Config{
		DB: client.DB, NATS: services.ToNATS("nats://nats:4222"), Listener: listener,
	}))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
