// Package natsconfig writes the accounts and users of a NATS server, with the rights of each role.
//
// A permission in NATS limits the subjects that a client publishes to, but not the reply subject that it requests. Any
// client that may pull a message can make the server publish it to ledger.>, where the stream stores it. An answer
// stays in the client's account, so each role has an account of its own. Only the relay and the administrator are in
// the stream's account.
//
// An answer can also be a request, if the account imports its subject. A pulled message could thus pull from another
// consumer. Subscribers therefore import only the requests about their own consumer. They do not create it, because a
// new consumer may deliver to any subject of the stream's account. In such an account the server itself answers
// requests below $JS.API. Therefore a subscriber's requests are in a JetStream domain with its name:
// jetstream.NewWithDomain(nc, "mails"). Operators import all requests, but may not pull from a consumer. Workers import
// none: they and the dispatcher exchange messages in plain NATS.
package natsconfig

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	ledgerstream "github.com/taskledger/taskledger/internal/stream"
)

// Names of the users that every configuration has.
const (
	Admin    = "admin"    // everything in the account of the stream: the command nats
	Relay    = "relay"    // the services of serve
	Worker   = "worker"   // workers of every kind
	Operator = "operator" // the commands of taskledger
	Waiter   = "waiter"   // programs that wait for results
)

// DefaultAccount is the name of the account of the stream.
const DefaultAccount = "LEDGER"

// Config describes the accounts of a server. The zero value contains the five users, without subscribers.
type Config struct {
	Account     string   // of the stream; the names of the other accounts begin with it. Default: LEDGER.
	Subscribers []string // users with one consumer each, of the same name
	Served      []string // names of subscribers of taskledger serve subscriber; * for all with one user
	StoreDir    string   // of JetStream. Default: /var/lib/nats.
	TLS         *TLS     // Default: disabled.

	// Credential returns the fields of a user with its credential: nkey: U…. Required.
	Credential func(user string) string
}

// TLS names the files of the server's certificate.
type TLS struct {
	Cert, Key string
	CA        string // of the clients' certificates, which are then required. Default: not required.
}

// Names of users and accounts.
var nameRule = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// Validate returns the first fault.
func (c Config) Validate() error {
	if slices.Contains(c.Served, anyName) && len(c.Served) > 1 {
		return fmt.Errorf("a user for all served subscribers must be the only one")
	}
	for i, name := range c.Users() {
		if !nameRule.MatchString(name) {
			return fmt.Errorf("name of a user must match %s, got %q", nameRule, name)
		}
		if slices.Contains(c.Users()[:i], name) {
			return fmt.Errorf("user %s must be named once", name)
		}
	}
	if c.Account != "" && !nameRule.MatchString(c.Account) {
		return fmt.Errorf("account must match %s, got %q", nameRule, c.Account)
	}
	if c.TLS != nil && (c.TLS.Cert == "" || c.TLS.Key == "") {
		return fmt.Errorf("TLS needs a certificate and its key")
	}
	return nil
}

// Users returns the names of all users.
func (c Config) Users() []string {
	users := append([]string{Admin, Relay, Worker, Operator, Waiter}, c.Subscribers...)
	for _, name := range c.Served {
		users = append(users, servedUser(name), ServerOf(servedUser(name)))
	}
	return users
}

// account is one account with its users.
type account struct {
	name    string
	comment string
	streams []string // lines that enable JetStream of its own
	users   []user
	exports []string // lines
	imports []string // lines
}

// user is a user with rights; nil: all.
type user struct {
	name   string
	rights *rights
}

// File returns a whole configuration file.
func (c Config) File() string {
	w := &writer{}
	storeDir := c.StoreDir
	if storeDir == "" {
		storeDir = "/var/lib/nats"
	}
	w.line("jetstream {")
	w.line("store_dir: " + strconv.Quote(storeDir))
	w.line("}")
	if c.TLS != nil {
		w.line("")
		w.line("tls {")
		w.line("cert_file: " + strconv.Quote(c.TLS.Cert))
		w.line("key_file: " + strconv.Quote(c.TLS.Key))
		if c.TLS.CA != "" {
			w.line("ca_file: " + strconv.Quote(c.TLS.CA))
			w.line("verify: true")
		}
		w.line("}")
	}
	w.line("")
	return w.String() + c.AccountsText()
}

// AccountsText returns the part of the configuration with accounts and users.
func (c Config) AccountsText() string {
	w := &writer{}
	w.line("accounts {")
	for i, a := range c.accounts() {
		if i > 0 {
			w.line("")
		}
		w.line("# " + a.comment)
		w.line(a.name + ": {")
		for _, line := range a.streams {
			w.line(line)
		}
		w.line("users: [")
		for _, u := range a.users {
			w.user(c.Credential(u.name), u.rights)
		}
		w.line("]")
		w.list("exports", a.exports)
		w.list("imports", a.imports)
		w.line("}")
	}
	w.line("}")
	return w.String()
}

// accounts returns the accounts; the stream's account is the first.
func (c Config) accounts() []account {
	stream := c.Account
	if stream == "" {
		stream = DefaultAccount
	}
	workers, operators, waiters := stream+"_WORKERS", stream+"_OPERATORS", stream+"_WAITERS"
	var subscribers []string
	for _, name := range c.Subscribers {
		subscribers = append(subscribers, stream+"_SUBSCRIBER_"+name)
	}
	services := []string{
		exported("service", allAPI, "response_type: stream, ", append([]string{operators}, subscribers...)...),
		exported("service", allReplays, "", operators),
	}
	if len(subscribers) > 0 {
		services = append(services, exported("service", allAcks, "", subscribers...))
	}
	var outcomesOut, outcomesIn []string
	for _, subject := range outcomes() {
		outcomesOut = append(outcomesOut, exported("stream", subject, "", workers, operators, waiters))
		outcomesIn = append(outcomesIn, imported("stream", stream, subject))
	}
	list := []account{{
		name:    stream,
		comment: "The stream, its administrator, and the services of taskledger serve.",
		streams: []string{"jetstream: enabled"},
		users:   []user{{Admin, nil}, {Relay, relayRights()}},
		exports: slices.Concat(services, []string{exported("stream", allOffers, "", workers)}, outcomesOut),
		imports: []string{imported("stream", workers, ledgerstream.AllReports)},
	}, {
		name:    workers,
		comment: "Workers: workers.Pool. They ask the dispatcher for tasks, and wait for results.",
		users:   []user{{Worker, workerRights()}},
		exports: []string{
			exported("stream", allProgress, "", operators), exported("stream", ledgerstream.AllReports, "", stream),
		},
		imports: append([]string{imported("stream", stream, allOffers)}, outcomesIn...),
	}, {
		name:    operators,
		comment: "The commands of taskledger.",
		users:   []user{{Operator, operatorRights()}},
		imports: append([]string{
			imported("service", stream, allAPI), imported("service", stream, allReplays),
			imported("stream", workers, allProgress),
		}, outcomesIn...),
	}, {
		name:    waiters,
		comment: "Programs that wait for results: outbox.Waiter. They receive the outcomes of tasks.",
		users:   []user{{Waiter, waiterRights()}},
		imports: outcomesIn,
	}}
	for i, name := range c.Subscribers {
		list = append(list, account{
			name:    subscribers[i],
			comment: fmt.Sprintf("A subscriber to events, with the consumer %s and the JetStream domain %[1]s.", name),
			users:   []user{{name, subscriberRights(name)}},
			imports: subscriberImports(stream, name),
		})
	}
	for _, name := range c.Served {
		of, comment := servedUser(name), "Subscribers of taskledger serve subscriber, and their servers."
		if name != anyName {
			comment = "The subscriber " + name + ", which " + ServerOf(of) + " serves from the database."
		}
		list = append(list, account{
			name: strings.TrimSuffix(stream+"_SERVED_"+name, "_"+anyName), comment: comment,
			streams: servedStreams(name), users: []user{{of, servedRights(name)}, {ServerOf(of), serverRights(name)}},
		})
	}
	return list
}

// subscriberImports returns the imports of a subscriber, whose requests are in a domain with its name.
func subscriberImports(stream, name string) []string {
	var lines []string
	for _, request := range subscriberRequests(name) {
		line := strings.TrimSuffix(imported("service", stream, request), " }")
		lines = append(lines, fmt.Sprintf("%s, to: %q }", line, inDomain(name, request)))
	}
	return append(lines, imported("service", stream, acksOf(name)))
}

func exported(what, subject, options string, accounts ...string) string {
	return fmt.Sprintf("{ %s: %q, %saccounts: [%s] }", what, subject, options, strings.Join(accounts, ", "))
}

func imported(what, from, subject string) string {
	return fmt.Sprintf("{ %s: { account: %s, subject: %q } }", what, from, subject)
}

// writer writes lines, indented by their brackets.
type writer struct {
	strings.Builder
	depth int
}

func (w *writer) line(text string) {
	if strings.HasPrefix(text, "}") || strings.HasPrefix(text, "]") {
		w.depth--
	}
	if text != "" {
		w.WriteString(strings.Repeat("  ", w.depth))
	}
	w.WriteString(text + "\n")
	if strings.HasSuffix(text, "{") || strings.HasSuffix(text, "[") {
		w.depth++
	}
}

func (w *writer) user(credential string, r *rights) {
	if r == nil {
		w.line("{ " + credential + " }")
		return
	}
	w.line("{")
	w.line(credential)
	w.line("permissions: {")
	w.list("publish", quoted(r.publish))
	w.list("subscribe", quoted(r.subscribe))
	w.line("}")
	w.line("}")
}

func quoted(subjects []string) (lines []string) {
	for _, subject := range subjects {
		lines = append(lines, strconv.Quote(subject))
	}
	return lines
}

// list writes a named list, unless it is empty.
func (w *writer) list(name string, lines []string) {
	if len(lines) == 0 {
		return
	}
	w.line(name + ": [")
	for _, line := range lines {
		w.line(line)
	}
	w.line("]")
}
