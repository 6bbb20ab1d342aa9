package natsconfig

import (
	"strings"

	"github.com/taskledger/taskledger/internal/stream"
)

// Subjects of JetStream and of our own messages between workers and operators.
const (
	allAPI      = "$JS.API.>"
	allAcks     = "$JS.ACK." + stream.Name + ".>"
	allProgress = "taskledger.progress.>"
	allOffers   = "taskledger.dispatch.to.*"

	// Replays: taskledger replay. The administrator makes the stream.
	replayStream = "REPLAY"
	allReplays   = "replay.>"

	allCheckpoints = "checkpoint.>" // of the seal

	inboxes = "_INBOX.>" // of this account alone
)

// rights are the subjects that a user may publish and subscribe to.
type rights struct{ publish, subscribe []string }

// api returns the subject of a request about the stream.
func api(request string) string { return "$JS.API." + request + "." + stream.Name }

// relayRights are for the services that publish events and maintain the stream, and for the API's waits and the workers
// that it stands for, in their process.
func relayRights() *rights {
	return &rights{
		publish: []string{
			stream.AllSubjects,
			api("STREAM.CREATE"), api("STREAM.UPDATE"), api("STREAM.INFO"), api("STREAM.MSG.GET"),
			api("STREAM.MSG.DELETE"), api("CONSUMER.LIST"),
			stream.Copies, allOffers, stream.AllReports, allProgress, allCheckpoints,
		},
		subscribe: append([]string{inboxes, stream.Copies, stream.AllReports, allOffers}, outcomes()...),
	}
}

// workerRights are for workers, which run tasks and wait for other tasks. Workers need no right on the stream.
func workerRights() *rights {
	return &rights{
		publish:   []string{stream.AllReports, allProgress},
		subscribe: append([]string{allOffers}, outcomes()...),
	}
}

// operatorRights are for commands that inspect and change tasks. An operator may delete the stream, which the relay
// rebuilds from the ledger. It publishes replays on a separate stream, where it reads their progress. It waits for
// tasks.
func operatorRights() *rights {
	return &rights{
		publish: []string{
			api("STREAM.INFO"), api("STREAM.DELETE"), api("CONSUMER.LIST"),
			allReplays, "$JS.API.STREAM.NAMES", "$JS.API.STREAM.INFO." + replayStream,
			"$JS.API.STREAM.MSG.GET." + replayStream, "$JS.API.DIRECT.GET." + replayStream + ".>",
		},
		subscribe: append([]string{inboxes, allProgress}, outcomes()...),
	}
}

// outcomes are the subjects of the events with which tasks finish.
func outcomes() []string { return stream.OutcomeSubjects() }

// waiterRights are for programs that wait for results. No other account imports the subjects to which they publish.
func waiterRights() *rights { return &rights{subscribe: outcomes()} }

// subscriberRights are for the program that receives events by the consumer with this name. The administrator creates
// the consumer: a consumer can deliver to any subject, and so request another consumer's messages.
func subscriberRights(name string) *rights {
	r := &rights{subscribe: []string{inboxes}}
	for _, request := range subscriberRequests(name) {
		r.publish = append(r.publish, inDomain(name, request))
	}
	r.publish = append(r.publish, acksOf(name))
	return r
}

func subscriberRequests(name string) []string {
	return []string{api("STREAM.INFO"), api("CONSUMER.INFO") + "." + name, api("CONSUMER.MSG.NEXT") + "." + name}
}

// inDomain returns the subject of a request as a client of a JetStream domain publishes it.
func inDomain(domain, request string) string {
	return "$JS." + domain + strings.TrimPrefix(request, "$JS")
}

func acksOf(consumer string) string { return "$JS.ACK." + stream.Name + "." + consumer + ".>" }
