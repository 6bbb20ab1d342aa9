package natsconfig

import (
	"strings"

	"github.com/taskledger/taskledger/internal/stream"
)

const allAPI = "$JS.API.>"

func allAcks(p stream.Prefix) string     { return "$JS.ACK." + p.Stream() + ".>" }
func allProgress(p stream.Prefix) string { return p.ProgressSubject(">") }
func allOffers(p stream.Prefix) string   { return p.OfferSubject("*") }

// rights are the subjects that a user may publish and subscribe to.
type rights struct{ publish, subscribe []string }

// api returns the subject of a request about the stream.
func api(p stream.Prefix, request string) string { return "$JS.API." + request + "." + p.Stream() }

// relayRights are for the services that publish events and maintain the stream, and for the API's waits and the workers
// that it stands for, in their process.
func relayRights(p stream.Prefix) *rights {
	return &rights{
		publish: []string{
			p.AllSubjects(),
			api(p, "STREAM.CREATE"), api(p, "STREAM.UPDATE"), api(p, "STREAM.INFO"), api(p, "STREAM.MSG.GET"),
			api(p, "STREAM.MSG.DELETE"), api(p, "CONSUMER.LIST"),
			p.Copies(), allOffers(p), p.AllReports(), allProgress(p), p.CheckpointSubject("checkpoint.>"), p.Wake(),
		},
		subscribe: append([]string{p.Inboxes(), p.Copies(), p.AllReports(), allOffers(p), p.Wake()},
			p.OutcomeSubjects()...),
	}
}

// workerRights are for workers, which run tasks and wait for other tasks. Workers need no right on the stream.
func workerRights(p stream.Prefix) *rights {
	return &rights{
		publish:   []string{p.AllReports(), allProgress(p), p.Wake()},
		subscribe: append([]string{allOffers(p)}, p.OutcomeSubjects()...),
	}
}

// operatorRights are for commands that inspect and change tasks. An operator may delete the stream, which the relay
// rebuilds from the ledger. It publishes replays on a separate stream, where it reads their progress. It waits for
// tasks.
func operatorRights(p stream.Prefix) *rights {
	return &rights{
		publish: []string{
			api(p, "STREAM.INFO"), api(p, "STREAM.DELETE"), api(p, "CONSUMER.LIST"),
			p.AllReplays(), "$JS.API.STREAM.NAMES", "$JS.API.STREAM.INFO." + p.ReplayStream(),
			"$JS.API.STREAM.MSG.GET." + p.ReplayStream(), "$JS.API.DIRECT.GET." + p.ReplayStream() + ".>", p.Wake(),
		},
		subscribe: append([]string{p.Inboxes(), allProgress(p)}, p.OutcomeSubjects()...),
	}
}

// waiterRights are for programs that enqueue tasks and wait for results: they wake the services. No other account
// imports the other subjects to which they publish. Where ledgers share the account, they publish nothing that programs
// of another ledger receive.
func waiterRights(p stream.Prefix) *rights {
	r := &rights{subscribe: p.OutcomeSubjects()}
	if p != stream.None {
		r.publish = []string{p.Inboxes(), p.Wake()}
	}
	return r
}

// subscriberRights are for the program that receives events by the consumer with this name. The administrator creates
// the consumer: a consumer can deliver to any subject, and so request another consumer's messages.
func subscriberRights(p stream.Prefix, name string) *rights {
	r := &rights{subscribe: []string{p.Inboxes()}}
	for _, request := range subscriberRequests(p, name) {
		r.publish = append(r.publish, inDomain(userOf(p, name), request))
	}
	r.publish = append(r.publish, acksOf(p, name))
	return r
}

func subscriberRequests(p stream.Prefix, name string) []string {
	return []string{
		api(p, "STREAM.INFO"), api(p, "CONSUMER.INFO") + "." + name, api(p, "CONSUMER.MSG.NEXT") + "." + name,
	}
}

// inDomain returns the subject of a request as a client of a JetStream domain publishes it.
func inDomain(domain, request string) string {
	return "$JS." + domain + strings.TrimPrefix(request, "$JS")
}

func acksOf(p stream.Prefix, consumer string) string {
	return "$JS.ACK." + p.Stream() + "." + consumer + ".>"
}
