package natsconfig

import (
	"fmt"

	"github.com/taskledger/taskledger/internal/stream"
)

// Served is the user, on servers of serve and demo, that receives the events of every served subscriber.
const Served = "served"

// anyName stands for every subscriber in Config.Served.
const anyName = "*"

// servedUser returns the name of the user that receives the events of a served subscriber.
func servedUser(name string) string {
	if name == anyName {
		return Served
	}
	return name
}

// ServerOf returns the name of the user that serves a subscriber, given the user that receives its events.
func ServerOf(user string) string { return user + "-server" }

// servedStream returns the name of the stream of a subscriber.
func servedStream(p stream.Prefix, name string) string {
	if name == anyName {
		return anyName
	}
	return p.ServedStream(name)
}

// servedBytes is the maximum size of a served subscriber's stream, as package outbox creates it.
const servedBytes = 64 << 20

// maxServed is the maximum number of subscribers that one account serves, the same as for a login of the database.
const maxServed = 250

// servedStreams returns lines that enable JetStream. Its limits leave disk and memory of the server to the ledger's
// stream.
func servedStreams(name string) []string {
	streams := 1
	if name == anyName {
		streams = maxServed
	}
	return []string{
		"jetstream {", fmt.Sprintf("max_streams: %d", streams), "max_memory: 0", "max_bytes_required: true",
		fmt.Sprintf("disk_max_stream_bytes: %d", servedBytes), "}",
	}
}

// servedRights are for the program of a served subscriber. It receives and acknowledges its consumer's messages. The
// consumer's stream is in an account of its own.
func servedRights(p stream.Prefix, name string) *rights {
	of := servedStream(p, name) + "." + name
	return &rights{
		publish: []string{
			"$JS.API.STREAM.INFO." + servedStream(p, name), "$JS.API.CONSUMER.INFO." + of,
			"$JS.API.CONSUMER.MSG.NEXT." + of, "$JS.ACK." + of + ".>",
		},
		subscribe: []string{p.Inboxes()},
	}
}

// serverRights are for taskledger serve subscriber.
func serverRights(p stream.Prefix, name string) *rights {
	of := servedStream(p, name)
	return &rights{
		publish: []string{
			p.ServedSubject(name, p.AllSubjects()), "$JS.API.STREAM.INFO." + of, "$JS.API.STREAM.CREATE." + of,
			"$JS.API.STREAM.PURGE." + of,
			"$JS.API.CONSUMER.INFO." + of + "." + name, "$JS.API.CONSUMER.CREATE." + of + "." + name,
		},
		subscribe: []string{p.Inboxes()},
	}
}
